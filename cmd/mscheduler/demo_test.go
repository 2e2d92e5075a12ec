package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo on a few tasks: the processes, the kill and the freeze are real.
func TestDemoLosesNothing(t *testing.T) {
	needsSignals(t)
	tmp := t.TempDir()
	cmd := binary(t, t.TempDir(), "demo", "--tasks", "150", "-o", "json")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "MSCHEDULER_MONGODB_URI=mongodb://127.0.0.1:1") // never the user's own
	code, stdout, stderr := run(t, cmd)
	require.Equal(t, 0, code, stderr)

	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(stdout), &fields))
	require.Len(t, fields, 8, stdout)
	var s struct {
		Tasks, Succeeded, Lost, Takeovers, Fenced int
		WallSeconds                               float64                         `json:"wall_seconds"`
		DueToStart                                struct{ P50, P95, P99 float64 } `json:"due_to_start_ms"`
		Flow                                      struct {
			Status           string
			Nodes, Succeeded int
			Killed           string `json:"killed_worker"`
			Took             string `json:"took_over_by"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &s))
	require.Equal(t, 150, s.Tasks)
	require.Equal(t, 150, s.Succeeded)
	require.Zero(t, s.Lost)
	require.Positive(t, s.Takeovers)
	require.Positive(t, s.Fenced)
	require.LessOrEqual(t, s.DueToStart.P50, s.DueToStart.P99)
	require.Contains(t, stderr, "SIGKILL to worker-")
	require.Contains(t, stderr, "SIGSTOP to worker-")
	require.Contains(t, stderr, "late results were refused")
	require.Equal(t, "FINISH 4 4", fmt.Sprint(s.Flow.Status, " ", s.Flow.Nodes, " ", s.Flow.Succeeded))
	require.Contains(t, stderr, "SIGKILL to "+s.Flow.Killed+", which runs the node pay")
	require.Contains(t, stderr, s.Flow.Took+" took over the node pay")
	require.NotEqual(t, s.Flow.Killed, s.Flow.Took)

	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	require.NoError(t, err)
	require.Empty(t, left, "it cleans up behind itself")
}

// Ctrl-C in the middle ends the demo and every process of it.
func TestInterruptedDemoLeavesNothingBehind(t *testing.T) {
	needsSignals(t)
	tmp := t.TempDir()
	cmd := binary(t, t.TempDir(), "demo", "--tasks", "2000")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	demo := start(t, cmd)
	demo.says("they become due")
	require.NoError(t, demo.Process.Signal(os.Interrupt))
	require.Equal(t, 130, demo.end(), "and the pipe that the workers would hold open is closed")
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
