package httptarget

import (
	"maps"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Kept is the checkpoint of a task that calls a target: what its run keeps of the last call.
type Kept struct {
	Call *schedule.HTTPCall `json:"http_call"`
}

// Bounds of the kept parts of a call, in bytes.
const (
	keptURL     = 2 << 10
	keptHeader  = 1 << 10
	keptHeaders = 4 << 10 // all of them
	keptBody    = 4 << 10
)

// KeptRequest returns the kept part of a run's request, without secrets. hide replaces those
// in headers. The completion URL is a secret, too, because it allows its holder to end the run.
func (t *Target) KeptRequest(v Values, hide func(headers map[string]string) map[string]string) (schedule.HTTPRequest, error) {
	if v.CompletionURL != "" {
		v.CompletionURL = safetext.Hidden
	}
	r, err := t.Fill(v)
	if err != nil {
		return schedule.HTTPRequest{}, err
	}
	out := schedule.HTTPRequest{Method: r.Method}
	// A path takes the placeholder of a secret as it is.
	out.URL = cut(strings.ReplaceAll(safetext.URL(r.URL), "%2A%2A%2A", safetext.Hidden), keptURL, &out.Truncated)
	out.Headers = headerLines(hide(r.Headers), &out.Truncated)
	out.Body = cut(r.Body, keptBody, &out.Truncated)
	return out, nil
}

// KeptResponse returns the kept part of a response.
func KeptResponse(status int, headers map[string]string, body, encoding string, truncated bool) *schedule.HTTPResponse {
	out := &schedule.HTTPResponse{Status: status, Encoding: encoding, Truncated: truncated}
	out.Headers = headerLines(headers, &out.Truncated)
	out.Body = cut(body, keptBody, &out.Truncated)
	return out
}

// KeptError returns the kept part of the error of a call.
func KeptError(err error) string {
	var truncated bool
	return cut(err.Error(), keptHeader, &truncated)
}

func headerLines(headers map[string]string, truncated *bool) (lines []string) {
	left := keptHeaders
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		line := cut(name+": "+headers[name], keptHeader, truncated)
		if left -= len(line); left < 0 {
			*truncated = true
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// cut is the head of a text that is too long.
func cut(s string, most int, truncated *bool) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	*truncated = true
	return strings.ToValidUTF8(s[:most], "")
}
