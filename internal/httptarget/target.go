package httptarget

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// TaskType is the type of the tasks that call targets.
const TaskType = "mscheduler.http"

// Bounds and defaults of a target.
const (
	DefaultTimeout           = 15 * time.Second
	MaxTimeout               = time.Hour
	DefaultCompletionTimeout = time.Hour
	MaxCompletionTimeout     = 90 * 24 * time.Hour
	MaxBodyBytes             = 32 << 10
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
	URL string
	// Method defaults to POST where there is a body and in mode ASYNC, else to GET.
	Method string
	// Headers of the request. Those that begin with Mscheduler- are the worker's. The values
	// of Authorization, Proxy-Authorization, Cookie and X-Api-Key are never shown, and sealed
	// where there is a key.
	Headers map[string]string
	// Body is at most 32 KiB. It is JSON when the header Content-Type says so, or when it
	// is JSON and no header says anything: then it is sent as application/json. One that
	// only looks like JSON wants a header that says what it is.
	Body string
	// Timeout bounds the call, redirects and reading the answer included. Defaults to 15 s,
	// at most an hour.
	Timeout time.Duration
	// Expect lists the statuses of the answer that are a success (SYNC), or by which the
	// target accepts (ASYNC). Defaults to 2xx.
	Expect []httpcall.StatusRange
	// Mode defaults to SYNC. In mode ASYNC no redirect to another host is followed: it would
	// learn the URL that completes the run.
	Mode Mode
	// CompletionTimeout is how long a run waits for its completion after the answer. Defaults
	// to an hour, at most 90 days. Only in mode ASYNC.
	CompletionTimeout time.Duration
	// CompletionMethod is the method that the completion must have: POST or PUT. Defaults to
	// either. The call names it in the header Mscheduler-Callback-Method. Only in mode ASYNC.
	CompletionMethod string
	// Keys sign the call as callbacks are signed (package callback), the newest first. The
	// secrets are sealed before they are stored, and never shown.
	Keys []model.CallbackKey
}

// wireKey is a key in the JSON, with its secret.
type wireKey struct {
	AccessKey string `json:"ak"`
	Secret    string `json:"sk"`
}

// wire is the JSON of a target: what the arguments of its tasks are.
type wire struct {
	URL                 string                 `json:"url"`
	Method              string                 `json:"method,omitempty"`
	Headers             map[string]string      `json:"headers,omitempty"`
	Body                string                 `json:"body,omitempty"`
	TimeoutMS           int64                  `json:"timeout_ms,omitempty"`
	Expect              []httpcall.StatusRange `json:"expect,omitempty"`
	Mode                Mode                   `json:"mode,omitempty"`
	CompletionTimeoutMS int64                  `json:"callback_timeout_ms,omitempty"`
	CompletionMethod    string                 `json:"callback_method,omitempty"`
	Keys                []wireKey              `json:"keys,omitempty"`
}

// MarshalJSON writes the target with its sealed secrets: it is what tasks carry.
func (t Target) MarshalJSON() ([]byte, error) {
	var keys []wireKey
	for _, k := range t.Keys {
		keys = append(keys, wireKey(k))
	}
	return json.Marshal(wire{
		URL: t.URL, Method: t.Method, Headers: t.Headers, Body: t.Body, TimeoutMS: t.Timeout.Milliseconds(), Expect: t.Expect,
		Mode: t.Mode, CompletionTimeoutMS: t.CompletionTimeout.Milliseconds(), CompletionMethod: t.CompletionMethod, Keys: keys,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote, and bears with fields of a later release.
func (t *Target) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&w); err != nil {
		return err
	}
	*t = Target{
		URL: w.URL, Method: w.Method, Headers: w.Headers, Body: w.Body, Timeout: time.Duration(w.TimeoutMS) * time.Millisecond, Expect: w.Expect,
		Mode: w.Mode, CompletionTimeout: time.Duration(w.CompletionTimeoutMS) * time.Millisecond, CompletionMethod: w.CompletionMethod,
	}
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
	return or(t.CompletionTimeout, DefaultCompletionTimeout)
}

// Limit is how long the call may take.
func (t *Target) Limit() time.Duration { return or(t.Timeout, DefaultTimeout) }

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// Check finds everything that is wrong with the target; field names it in the errors.
func (t *Target) Check(field string) error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, input.Invalid(field+"."+name, format, args...))
	}
	errs = append(errs, t.checkURL(field), httpcall.ValidMethod(field+".method", t.Method), httpcall.ValidStatuses(field+".expect", t.Expect))
	errs = append(errs, t.CheckHeaders(field), t.checkBody(field+".body"))
	if t.Timeout < 0 || t.Timeout > MaxTimeout || t.Timeout%time.Millisecond != 0 {
		bad("timeout", "is %v; want whole milliseconds up to %v, or 0 for the default of %v", t.Timeout, MaxTimeout, DefaultTimeout)
	}
	if !slices.Contains([]Mode{"", Sync, Async}, t.Mode) {
		bad("mode", "is %q; want one of %v", t.Mode, []Mode{Sync, Async})
	}
	switch {
	case t.CompletionTimeout != 0 && !t.async():
		bad("callback_timeout", "is %v, but mode %s has no completion", t.CompletionTimeout, Sync)
	case t.CompletionTimeout < 0 || t.CompletionTimeout > MaxCompletionTimeout || t.CompletionTimeout%time.Millisecond != 0:
		bad("callback_timeout", "is %v; want whole milliseconds up to %v, or 0 for the default of %v", t.CompletionTimeout, MaxCompletionTimeout, DefaultCompletionTimeout)
	}
	switch {
	case t.CompletionMethod != "" && !t.async():
		bad("callback_method", "is %q, but mode %s has no completion", t.CompletionMethod, Sync)
	case !slices.Contains([]string{"", http.MethodPost, http.MethodPut}, t.CompletionMethod):
		bad("callback_method", "is %q; want %s or %s", t.CompletionMethod, http.MethodPost, http.MethodPut)
	}
	if len(t.Keys) > maxKeys {
		bad("keys", "has %d; at most %d are allowed", len(t.Keys), maxKeys)
	}
	for i, k := range t.Keys {
		if k.AccessKey == "" || k.Secret == "" {
			bad(fmt.Sprintf("keys[%d]", i), "wants an access key and a secret")
		}
	}
	return errors.Join(errs...)
}
