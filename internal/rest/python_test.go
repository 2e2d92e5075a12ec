package rest_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// The worker of the docs, as somebody would start it.
func TestTheWorkerInPythonRunsTasks(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	w := guarded(t)
	admin, worker := w.with(access.Admin), w.with(access.Worker)
	cmd := exec.CommandContext(t.Context(), python, "../../docs/api/worker.py")
	cmd.Env = []string{"MSCHEDULER_URL=" + w.url, "MSCHEDULER_TOKEN=" + worker.token}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	admin.ok("POST", "/api/v1/tasks", `{"type": "greet", "key": "ann", "args": {"name": "Ann"}}`)
	admin.ok("POST", "/api/v1/tasks", `{"type": "greet", "key": "nobody", "args": {}, "options": {"retry": {"max_errors": 0}}}`)
	for key, want := range map[string][2]any{"ann": {"Success", "Hello Ann!"}, "nobody": {"Failure", nil}} {
		var task map[string]any
		require.Eventually(t, func() bool {
			task = admin.ok("GET", "/api/v1/tasks/-/greet/"+key+"/wait", "")
			return task["finished_at"] != nil
		}, testdb.Patience, time.Millisecond)
		require.Equal(t, want, [2]any{task["status"], task["result"]})
	}
	require.Contains(t, admin.ok("GET", "/api/v1/tasks/-/greet/nobody", "")["error_info"], "KeyError('name')")
}
