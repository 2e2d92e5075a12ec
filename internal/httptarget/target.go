package httptarget

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// TaskType is the type of the tasks that call targets.
const TaskType = "mscheduler.http"

// CompletionPath is the path of completions; the token follows it.
//
// A request from an ASYNC target that ends its run is a completion; a callback is a request that
// mscheduler sends. This path, the status WAITING_CALLBACK, the fields callback_timeout and
// callback_method, the placeholder {{callback_url}} and the headers Mscheduler-Callback-* keep the
// names of seed 003, which targets and stored rules use.
const CompletionPath = "/api/v1/callbacks/"

// Kept is the checkpoint of a task that calls a target: the record of its last call.
type Kept struct {
	Call *schedule.HTTPCall `json:"http_call"`
}

// Bounds and defaults of a target.
const (
	defaultTimeout           = 15 * time.Second
	maxTimeout               = time.Hour
	defaultCompletionTimeout = time.Hour
	maxCompletionTimeout     = 90 * 24 * time.Hour
	maxBodyBytes             = 32 << 10
	maxKeys                  = 10
)

// Target is a target with what is done with it: checks, its JSON, the call of a run.
type Target schedule.HTTPTarget

// plainTarget is a target without its methods.
type plainTarget Target

// key is a key in the JSON, with its secret.
type key struct {
	AccessKey string `json:"ak"`
	Secret    string `json:"sk"`
}

// wire is the JSON of a target, the arguments of its tasks.
type wire struct {
	*plainTarget
	Expect              []httpcall.StatusRange `json:"expect,omitempty"`
	TimeoutMS           int64                  `json:"timeout_ms,omitempty"`
	CompletionTimeoutMS int64                  `json:"callback_timeout_ms,omitempty"`
	Keys                []key                  `json:"keys,omitempty"`
}

// MarshalJSON writes the target with its sealed secrets: it is what tasks carry.
func (t Target) MarshalJSON() ([]byte, error) {
	w := wire{plainTarget: (*plainTarget)(&t), Expect: t.expect(), TimeoutMS: t.Timeout.Milliseconds(), CompletionTimeoutMS: t.CompletionTimeout.Milliseconds()}
	for _, k := range t.Keys {
		w.Keys = append(w.Keys, key(k))
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote, and ignores the fields of a later release.
func (t *Target) UnmarshalJSON(data []byte) error {
	*t = Target{}
	w := wire{plainTarget: (*plainTarget)(t)}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	t.Timeout, t.CompletionTimeout = time.Duration(w.TimeoutMS)*time.Millisecond, time.Duration(w.CompletionTimeoutMS)*time.Millisecond
	for _, r := range w.Expect {
		t.Expect = append(t.Expect, schedule.StatusRange(r))
	}
	for _, k := range w.Keys {
		t.Keys = append(t.Keys, callback.Key(k))
	}
	return nil
}

func (t *Target) expect() (out []httpcall.StatusRange) {
	for _, r := range t.Expect {
		out = append(out, httpcall.StatusRange(r))
	}
	return out
}

// async reports whether a completion decides.
func (t *Target) async() bool { return t.Mode == schedule.HTTPAsync }

// Waits is how long a run waits for its completion; 0 if the answer decides.
func (t *Target) Waits() time.Duration {
	if !t.async() {
		return 0
	}
	return cmp.Or(t.CompletionTimeout, defaultCompletionTimeout)
}

// Check finds everything that is wrong with the target; field names it in the errors.
func (t *Target) Check(field string) error {
	errs := []error{
		t.checkURL(field + ".url"), httpcall.ValidMethod(field+".method", t.Method), httpcall.ValidStatuses(field+".expect", t.expect()),
		t.CheckHeaders(field), t.checkBody(field + ".body"),
	}
	bad := func(name, format string, args ...any) {
		errs = append(errs, input.Invalid(field+"."+name, format, args...))
	}
	duration := func(name string, d, byDefault, most time.Duration) {
		if d < 0 || d > most || d%time.Millisecond != 0 {
			bad(name, "is %v; want whole milliseconds up to %v, or 0 for the default of %v", d, most, byDefault)
		}
	}
	duration("timeout", t.Timeout, defaultTimeout, maxTimeout)
	if !slices.Contains([]schedule.HTTPMode{"", schedule.HTTPSync, schedule.HTTPAsync}, t.Mode) {
		bad("mode", "is %q; want %s or %s", t.Mode, schedule.HTTPSync, schedule.HTTPAsync)
	}
	const useless = "is %v, but mode " + string(schedule.HTTPSync) + " has no completion"
	if t.CompletionTimeout != 0 && !t.async() {
		bad("callback_timeout", useless, t.CompletionTimeout)
	} else {
		duration("callback_timeout", t.CompletionTimeout, defaultCompletionTimeout, maxCompletionTimeout)
	}
	if t.CompletionMethod != "" && !t.async() {
		bad("callback_method", useless, t.CompletionMethod)
	} else if !slices.Contains([]string{"", http.MethodPost, http.MethodPut}, t.CompletionMethod) {
		bad("callback_method", "is %q; want %s or %s", t.CompletionMethod, http.MethodPost, http.MethodPut)
	}
	if len(t.Keys) > maxKeys {
		bad("keys", "has %d; at most %d are allowed", len(t.Keys), maxKeys)
	}
	for i, k := range t.Keys {
		if k.AccessKey == "" || k.Secret == "" {
			bad(fmt.Sprintf("keys[%d]", i), "needs an access key and a secret")
		}
	}
	return errors.Join(errs...)
}
