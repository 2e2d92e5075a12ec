package input

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheAddressOfTracesIsAWebAddressWithAPlaceForTheID(t *testing.T) {
	for _, good := range []string{
		"", "https://jaeger.example.org/trace/{trace_id}", "http://127.0.0.1:16686/trace/{trace_id}?uiFind=x", "https://grafana.example.org?trace={trace_id}", "https://h/#/{trace_id}",
	} {
		require.NoError(t, TraceURL("TraceURL", good), good)
	}
	for bad, why := range map[string]string{
		"javascript:alert('{trace_id}')//":    "want an http or https address",
		"jaeger.example.org/trace/{trace_id}": "want an http or https address",
		"https:///trace/{trace_id}":           "want an http or https address",
		"https://me:secret@h/{trace_id}":      "want an http or https address",
		"https://h/%zz/{trace_id}":            "want an http or https address",
		"https://jaeger.example.org/trace/":   "want {trace_id} in its path",
		"https://{trace_id}.example.org/":     "want {trace_id} in its path",
		"{trace_id}://example.org/":           "want an http or https address",
	} {
		require.ErrorContains(t, TraceURL("TraceURL", bad), why, bad)
	}
}
