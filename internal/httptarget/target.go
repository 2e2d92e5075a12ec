package httptarget

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// TaskType is the type of the tasks that call targets.
const TaskType = "mscheduler.http"

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

// Mode says what decides whether a run succeeded.
type Mode string

// The modes; "" is SYNC.
const (
	Sync  Mode = "SYNC"  // the answer to the call
	Async Mode = "ASYNC" // a completion, which the target sends when it is done
)

// Target is an HTTP call. Only URL is needed.
//
// URL, the values of Headers and Body may hold placeholders, which each run fills:
// {{run_id}}, {{task_id}}, {{name}} (the rule's), {{nominal_time}} (RFC 3339, UTC),
// {{attempt}} (as the failure policy counts), {{ext}} (the rule's, as JSON), {{ext.FIELD}} (a
// value in it: {{ext.region.name}}, {{ext.hosts.0}}) and, in mode ASYNC, {{callback_url}}. A value
// is percent-encoded in the URL and in headers, and written as the inside of a JSON string in a
// body that is JSON; in any other body it stands as it is. Outside of a string of a JSON body
// {{ext}} and {{ext.FIELD}} are JSON values: {"region": {{ext.region}}}.
type Target struct {
	// URL to call, http or https, without user and password. Placeholders may stand behind
	// the host only.
	URL string `json:"url"`
	// Method defaults to POST with a body or in mode ASYNC, otherwise to GET.
	Method string `json:"method,omitempty"`
	// Headers of the request. Those that begin with Mscheduler- are reserved for the worker. The
	// values of Authorization, Proxy-Authorization, Cookie and X-Api-Key are never shown, and sealed
	// if there is a key.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is at most 32 KiB. It is JSON if the header Content-Type says so, or if it is valid JSON
	// and there is no such header: then it is sent as application/json. A body that only looks like
	// JSON needs the header.
	Body string `json:"body,omitempty"`
	// Timeout bounds the call, including redirects and reading the answer. Defaults to 15 s,
	// at most an hour.
	Timeout time.Duration `json:"-"`
	// Expect lists the statuses of a success (SYNC), or of a call that the target accepts (ASYNC).
	// Defaults to 2xx.
	Expect []httpcall.StatusRange `json:"expect,omitempty"`
	// Mode defaults to SYNC. In mode ASYNC no redirect to another host is followed: that host would
	// learn the URL that completes the run.
	Mode Mode `json:"mode,omitempty"`
	// CompletionTimeout is how long a run waits for its completion after the answer. Defaults
	// to an hour, at most 90 days. Only in mode ASYNC.
	CompletionTimeout time.Duration `json:"-"`
	// CompletionMethod is the method that the completion must have: POST or PUT. Defaults to
	// either. The call names it in the header Mscheduler-Callback-Method. Only in mode ASYNC.
	CompletionMethod string `json:"callback_method,omitempty"`
	// Keys sign the call as callbacks are signed (package callback), the newest first. The
	// secrets are sealed before they are stored, and never shown.
	Keys []model.CallbackKey `json:"-"`
}

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
	TimeoutMS           int64 `json:"timeout_ms,omitempty"`
	CompletionTimeoutMS int64 `json:"callback_timeout_ms,omitempty"`
	Keys                []key `json:"keys,omitempty"`
}

// MarshalJSON writes the target with its sealed secrets: it is what tasks carry.
func (t Target) MarshalJSON() ([]byte, error) {
	w := wire{plainTarget: (*plainTarget)(&t), TimeoutMS: t.Timeout.Milliseconds(), CompletionTimeoutMS: t.CompletionTimeout.Milliseconds()}
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
	for _, k := range w.Keys {
		t.Keys = append(t.Keys, model.CallbackKey(k))
	}
	return nil
}

// async reports whether a completion decides.
func (t *Target) async() bool { return t.Mode == Async }

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
		t.checkURL(field + ".url"), httpcall.ValidMethod(field+".method", t.Method), httpcall.ValidStatuses(field+".expect", t.Expect),
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
	if !slices.Contains([]Mode{"", Sync, Async}, t.Mode) {
		bad("mode", "is %q; want one of %v", t.Mode, []Mode{Sync, Async})
	}
	const useless = "is %v, but mode " + string(Sync) + " has no completion"
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
