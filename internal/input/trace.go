package input

import (
	"net/url"
	"strings"
)

// TraceID is what stands for the id of a trace in an address.
const TraceID = "{trace_id}"

// TraceURL checks the address of the traces of a tracing backend, with [TraceID] in its path, query or fragment; "" = none.
func TraceURL(field, address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(address, TraceID, "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return Invalid(field, "is %q; want an http or https address without a password, such as https://jaeger.example.org/trace/%s", address, TraceID)
	}
	before, _, found := strings.Cut(address, TraceID)
	if _, rest, _ := strings.Cut(before, "://"); !found || !strings.ContainsAny(rest, "/?#") {
		return Invalid(field, "is %q; want %s in its path, query or fragment", address, TraceID)
	}
	return nil
}
