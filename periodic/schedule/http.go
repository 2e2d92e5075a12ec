package schedule

import (
	"time"

	"github.com/mscheduler/mscheduler/callback"
)

// HTTPTarget is an HTTP call that a rule makes at each tick, as a task of type mscheduler.http.
// Workers of the built-in types run it (mscheduler work). Options.Retry of the rule configures
// retries of a run. Without it, the first error fails the run, unless the document of that type
// sets retries. OnFailure selects what follows a failed run. Only URL is required.
//
// URL, the values of Headers and Body may hold placeholders, which each run fills: {{run_id}},
// {{task_id}}, {{name}} (the rule's), {{nominal_time}} (RFC 3339, UTC), {{attempt}} (as the
// failure policy counts), {{ext}} (the rule's, as JSON), {{ext.FIELD}} (a value in it:
// {{ext.region.name}}, {{ext.hosts.0}}) and, in mode ASYNC, {{callback_url}}. In the URL and in
// headers, values are percent-encoded. In a JSON body, they are escaped as the content of a
// JSON string. In any other body, they are inserted unchanged. Outside of a string in a JSON
// body, {{ext}} and {{ext.FIELD}} are JSON values: {"region": {{ext.region}}}.
type HTTPTarget struct {
	// URL to call, http or https, without user and password. Placeholders are allowed only
	// after the host.
	URL string `json:"url"`
	// Method defaults to POST with a body or in mode ASYNC, otherwise to GET.
	Method string `json:"method,omitempty"`
	// Headers of the request. Headers that begin with Mscheduler- are reserved for the worker, and Host has no
	// placeholders.
	// The values of Authorization, Proxy-Authorization, Cookie and X-Api-Key are never shown,
	// and they are encrypted if a SecretKey is set.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is at most 32 KiB. It is JSON if the header Content-Type says so, or if it is valid JSON
	// and there is no such header: then it is sent as application/json. A body that only looks like
	// JSON needs the header.
	Body string `json:"body,omitempty"`
	// Timeout limits the call, including redirects and reading the answer. Defaults to 15 s, at
	// most an hour.
	Timeout time.Duration `json:"-"`
	// Expect lists the statuses of a success (SYNC), or of a call that the target accepts (ASYNC).
	// Defaults to 2xx.
	Expect []StatusRange `json:"expect,omitempty"`
	// Mode defaults to SYNC. In mode ASYNC the worker does not follow a redirect to another
	// host, because that host would learn the completion URL.
	Mode HTTPMode `json:"mode,omitempty"`
	// CompletionTimeout is how long a run waits for its completion after the answer. Defaults
	// to an hour, at most 90 days. Only in mode ASYNC.
	CompletionTimeout time.Duration `json:"-"`
	// CompletionMethod is the method that the completion must have: POST or PUT. Defaults to
	// either. The call names it in the header Mscheduler-Callback-Method. Only in mode ASYNC.
	CompletionMethod string `json:"callback_method,omitempty"`
	// Keys sign the call in the same way as callbacks (package callback), the newest first. The
	// secrets are encrypted before they are stored, and never shown.
	Keys []callback.Key `json:"-"`
}

// HTTPMode selects what decides whether a run of an [HTTPTarget] succeeded.
type HTTPMode string

// The modes; "" is SYNC.
const (
	HTTPSync  HTTPMode = "SYNC"  // the answer: RunFailed, or RunTimeout if none came
	HTTPAsync HTTPMode = "ASYNC" // a completion, which the target sends when it is done: RunFailedTimeout if none came
)

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ From, To int }
