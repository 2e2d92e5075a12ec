package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatHandlersGetAndSayIsNotInTheAudit(t *testing.T) {
	text := masked([]byte(`{"status": "New", "args": "hush", "checkpoint": "hush", "steps": [{"value": "hush"}], "worker_states": [{"worker_id": "w", "returns": "hush"}]}`), true)
	require.NotContains(t, text, "hush")
	require.Contains(t, text, `"worker_id":"w"`)
}
