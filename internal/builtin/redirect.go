package builtin

import (
	"maps"
	"net/http"
	"strings"

	"github.com/mscheduler/mscheduler/internal/httpcall"
)

// Redirects. At most HTTPArgs.MaxRedirects are followed, and of those only the ones
// that repeat the request as it was: all of them for GET and HEAD, 307 and 308 for
// every other method (301 to 303 would turn a POST into a GET without its body, and
// the task would look done). One that leads from https to http is never followed.
//
// A redirect that is not followed is the answer. Its status is then an error unless the
// task expects it, which says more than to stop with "too many redirects".
//
// The caller's headers stay behind when the host changes: they may be credentials. So do
// the signature, which is for the first host, and the referrer, which may hold a token. The
// worker's own go along, since the new host needs them to recognise a repeated call.
//
// A call that hands out a completion token stays with its host: the token can be read from the
// completion URL or made from the execution's id, and its holder may end the run.
//
// One that leads to an address that no task may reach ends the call.
func redirectPolicy(a *HTTPArgs, reach httpcall.Reach) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, via []*http.Request) error {
		first, last := via[0], via[len(via)-1]
		switch {
		case len(via) > a.redirects(),
			next.Method != first.Method,
			next.URL.Host != first.URL.Host && first.Header.Get(completionURLHeader) != "",
			last.URL.Scheme == "https" && next.URL.Scheme == "http":
			return http.ErrUseLastResponse
		}
		if err := reach.Check(next.URL); err != nil {
			return err
		}
		if next.URL.Host != first.URL.Host {
			for name := range a.Headers {
				next.Header.Del(name)
			}
			next.Header.Del("Referer")
			maps.DeleteFunc(next.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Webhook-") })
		}
		return nil
	}
}
