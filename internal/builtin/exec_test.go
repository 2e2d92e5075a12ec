//go:build unix

package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func runArgs(t *testing.T, args map[string]any) (ExecResult, error) {
	t.Helper()
	return runWith(t, t.Context(), args)
}

func runWith(t *testing.T, ctx context.Context, args map[string]any) (ExecResult, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	require.NoError(t, err)
	var a ExecArgs
	require.NoError(t, decode(raw, &a, true))
	h := execHandler{limit: 64, env: []string{"PATH=" + os.Getenv("PATH"), "BASE=b"}}
	return h.run(ctx, &a, testCaller)
}

func sh(script string) map[string]any { return map[string]any{"argv": []string{"sh", "-c", script}} }

func TestOutputAndExitCodeAreTheResult(t *testing.T) {
	got, err := runArgs(t, sh("echo one; echo two >&2; echo three"))
	require.NoError(t, err)
	require.Equal(t, ExecResult{Output: "one\ntwo\nthree\n"}, got)
}

func TestNonZeroExitIsAnErrorWithTheTail(t *testing.T) {
	_, err := runArgs(t, sh("echo started; echo it broke >&2; exit 3"))
	require.EqualError(t, err, "sh: exit status 3: started\nit broke")
	require.False(t, isFatal(err))
}

func TestOutputIsItsTail(t *testing.T) {
	got, err := runArgs(t, sh(`i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done`))
	require.NoError(t, err)
	require.True(t, got.Truncated)
	require.LessOrEqual(t, len(got.Output), 64)
	require.True(t, strings.HasSuffix(got.Output, "line 498\nline 499\n"))
}

func TestEnvironmentDirectoryAndStdin(t *testing.T) {
	dir := t.TempDir()
	args := sh(`echo "$BASE $MINE $MSCHEDULER_TASK_ID $MSCHEDULER_FENCING_TOKEN $MSCHEDULER_ATTEMPT"; pwd; cat`)
	args["env"], args["dir"], args["stdin"] = map[string]string{"MINE": "m"}, dir, map[string]int{"a": 1}
	got, err := runArgs(t, args)
	require.NoError(t, err)
	require.Contains(t, "b m -/http/a b%é 0001-0002 3\n"+dir+"\n{\"a\":1}", got.Output, "the tail of it")
	require.True(t, strings.HasSuffix(got.Output, `{"a":1}`))

	args = sh("cat")
	args["stdin"] = "plain"
	got, err = runArgs(t, args)
	require.NoError(t, err)
	require.Equal(t, "plain", got.Output)
}

func TestWhatTheWorkerLacksIsWorthARetryElsewhere(t *testing.T) {
	_, err := runArgs(t, map[string]any{"argv": []string{"no-such-program"}})
	require.EqualError(t, err, "args.argv[0]: this worker has no program no-such-program")
	args := sh("true")
	args["dir"] = "/no/such/dir"
	_, err = runArgs(t, args)
	require.EqualError(t, err, "args.dir: this worker has no directory /no/such/dir")
	require.False(t, isFatal(err))
}

// running starts a program that starts another, and returns when both run: their
// process ids are in the file.
func running(t *testing.T, ctx context.Context, script string) (pids []int, done chan error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pids")
	done = make(chan error, 1)
	args := sh(script)
	args["env"] = map[string]string{"PIDS": file}
	go func() {
		_, err := runWith(t, ctx, args)
		done <- err
	}()
	require.Eventually(t, func() bool {
		data, _ := os.ReadFile(file)
		return strings.HasSuffix(string(data), "ready\n")
	}, testdb.Patience, 5*time.Millisecond)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, f := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	require.Len(t, pids, 2)
	return pids, done
}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return dead(pid) }, testdb.Patience, 5*time.Millisecond, "process %d", pid)
	}
}

// dead says whether the process is gone, or a zombie that nobody has waited for yet.
func dead(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

const twoSleepers = `sleep 600 & echo $$ $! > $PIDS; echo ready >> $PIDS; wait`

func TestEndOfTheContextEndsTheWholeGroup(t *testing.T) {
	for name, cause := range map[string]error{"shutdown": consumer.ErrShutdown, "lease lost": consumer.ErrLeaseLost, "cancelled": consumer.ErrCancelled} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			pids, done := running(t, ctx, twoSleepers)
			cancel(cause)
			require.ErrorIs(t, <-done, cause)
			requireGone(t, pids)
		})
	}
}

func TestLostLeaseLeavesNoTimeToTidyUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	asked := filepath.Join(t.TempDir(), "asked")
	pids, done := running(t, ctx, `trap 'echo > `+asked+`; sleep 600' TERM; `+twoSleepers)
	cancel(consumer.ErrLeaseLost)
	require.ErrorIs(t, <-done, consumer.ErrLeaseLost)
	requireGone(t, pids)
	require.NoFileExists(t, asked, "killed at once, not asked to end")
}

func TestProgramThatIgnoresTheRequestToEndIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	pids, done := running(t, ctx, `trap '' TERM; `+twoSleepers)
	cancel(consumer.ErrShutdown)
	require.ErrorIs(t, <-done, consumer.ErrShutdown)
	requireGone(t, pids)
}

func TestProgramHasATimeout(t *testing.T) {
	t.Parallel()
	args := sh("echo working; sleep 600")
	for timeout := 50; ; timeout *= 2 { // a busy machine starts a program late
		args["timeout_ms"] = timeout
		_, err := runArgs(t, args)
		if want := fmt.Sprintf("timed out: sh: still running after timeout_ms (%d ms): working", timeout); timeout > 20_000 || err != nil && err.Error() == want {
			require.EqualError(t, err, want)
			return
		}
		require.ErrorContains(t, err, "sh: ")
	}
}

func TestWhatAProgramLeavesBehindIsEnded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	args := sh(`sleep 600 & echo $! > $F; echo done`)
	args["env"] = map[string]string{"F": file}
	got, err := runArgs(t, args)
	require.NoError(t, err, "the program itself ended well")
	require.Equal(t, "done\n", got.Output)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	requireGone(t, []int{pid})
}
