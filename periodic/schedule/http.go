package schedule

import (
	"time"

	"github.com/mscheduler/mscheduler/callback"
)

// HTTPTarget is an HTTP call that a rule makes at each tick, as a task of type mscheduler.http.
// Workers of the built-in types run it (mscheduler work). Options.Retry of the rule says how a run
// is retried; without it the first error fails the run, unless the definition of that type says
// otherwise. OnFailure says what follows a failed run. Only URL is needed.
//
// URL, the values of Headers and Body may hold placeholders, which each run fills:
// {{run_id}}, {{task_id}}, {{name}} (the rule's), {{nominal_time}} (RFC 3339, UTC),
// {{attempt}} (as the failure policy counts), {{ext}} (the rule's, as JSON), {{ext.FIELD}} (a
// value in it: {{ext.region.name}}, {{ext.hosts.0}}) and, in mode ASYNC, {{callback_url}}. A value
// is percent-encoded in the URL and in headers, and written as the inside of a JSON string in a
// body that is JSON; in any other body it stands as it is. Outside of a string of a JSON body
// {{ext}} and {{ext.FIELD}} are JSON values: {"region": {{ext.region}}}.
type HTTPTarget struct {
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
	Expect []StatusRange `json:"expect,omitempty"`
	// Mode defaults to SYNC. In mode ASYNC no redirect to another host is followed: that host would
	// learn the URL that completes the run.
	Mode HTTPMode `json:"mode,omitempty"`
	// CompletionTimeout is how long a run waits for its completion after the answer. Defaults
	// to an hour, at most 90 days. Only in mode ASYNC.
	CompletionTimeout time.Duration `json:"-"`
	// CompletionMethod is the method that the completion must have: POST or PUT. Defaults to
	// either. The call names it in the header Mscheduler-Callback-Method. Only in mode ASYNC.
	CompletionMethod string `json:"callback_method,omitempty"`
	// Keys sign the call as callbacks are signed (package callback), the newest first. The
	// secrets are sealed before they are stored, and never shown.
	Keys []callback.Key `json:"-"`
}

// HTTPMode says what decides whether a run of an [HTTPTarget] succeeded.
type HTTPMode string

// The modes; "" is SYNC.
const (
	HTTPSync  HTTPMode = "SYNC"  // the answer: RunFailed, or RunTimeout where none came
	HTTPAsync HTTPMode = "ASYNC" // a completion, which the target sends when it is done: RunFailedTimeout if none came
)

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ From, To int }
