package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

// The test binary is mscheduler when this is set, so that the tests run real processes.
const asBinary = "MSCHEDULER_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	if os.Getenv(asBinary) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// binary is a command that runs mscheduler in a directory, with nothing of the test's
// own settings.
func binary(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Dir = dir
	cmd.Env = []string{asBinary + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	return cmd
}

// run runs a command to its end.
func run(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var failed *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &failed) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// process is a command that runs on; its stderr is read line by line.
type process struct {
	*exec.Cmd
	t     *testing.T
	lines chan string
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{Cmd: cmd, t: t, lines: make(chan string, 1000)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill() // what is left of a test that failed
			p.end()
		}
	})
	return p
}

// says waits for a line that contains the text.
func (p *process) says(text string) {
	p.t.Helper()
	limit := time.After(testdb.Patience)
	var seen []string
	for {
		select {
		case line, more := <-p.lines:
			if strings.Contains(line, text) {
				return
			}
			seen = append(seen, line)
			require.True(p.t, more, "it ended without saying %q: %q", text, seen)
		case <-limit:
			require.FailNow(p.t, "it does not say "+text, "%q", seen)
		}
	}
}

// end waits for the end of the process.
func (p *process) end() int {
	p.t.Helper()
	for more := true; more; { // to the end, as Wait wants it
		_, more = <-p.lines
	}
	_ = p.Wait() // the exit code says the same
	return p.ProcessState.ExitCode()
}

func needsSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no signals here")
	}
}

func TestEnvironmentIsReadAndFlagsWin(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := run(t, binary(t, dir, "task", "list"))
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "no database")

	cmd := binary(t, dir, "version")
	cmd.Env = append(cmd.Env, "MSCHEDULER_OUTPUT=json")
	_, stdout, _ := run(t, cmd)
	require.True(t, json.Valid([]byte(stdout)), stdout)

	cmd = binary(t, dir, "version", "-o", "table")
	cmd.Env = append(cmd.Env, "MSCHEDULER_OUTPUT=json")
	_, stdout, _ = run(t, cmd)
	require.True(t, strings.HasPrefix(stdout, "mscheduler "), stdout)

	cmd = binary(t, dir, "db", "status")
	cmd.Env = append(cmd.Env, "MSCHEDULER_MONGODB_URI=http://x")
	code, _, stderr = run(t, cmd)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "MSCHEDULER_MONGODB_URI is not a MongoDB URI")

	for value, text := range map[string]string{"many": `MSCHEDULER_CONCURRENCY is "many"; want a whole number`, "0": "concurrency is 0; want 1 to 1000000"} {
		cmd = binary(t, dir, "work")
		cmd.Env = append(cmd.Env, "MSCHEDULER_CONCURRENCY="+value)
		code, _, stderr = run(t, cmd)
		require.Equal(t, 2, code)
		require.Equal(t, "mscheduler: "+text+"\n", stderr)
	}
}

// busyDev starts a dev server whose worker runs a program that never ends.
func busyDev(t *testing.T, args ...string) (dev *process, dir string) {
	t.Helper()
	needsSignals(t)
	dir = t.TempDir()
	dev = start(t, binary(t, dir, append([]string{"dev", "--allow-exec"}, args...)...))
	dev.says("Ctrl-C stops it gracefully")
	started := filepath.Join(dir, "started")
	code, _, stderr := run(t, binary(t, dir, "send", "exec", "--key", "k", "--args", `{"argv":["sh","-c","touch `+started+`; exec sleep 600"]}`))
	require.Equal(t, 0, code, stderr)
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, testdb.Patience, 10*time.Millisecond)
	return dev, dir
}

func TestFirstSignalStopsGracefully(t *testing.T) {
	dev, dir := busyDev(t, "--shutdown-timeout", "100ms")
	require.NoError(t, dev.Process.Signal(syscall.SIGTERM))
	dev.says("stopping: waiting at most 100ms for 1 task")
	dev.says("stopped: ")
	require.Equal(t, 0, dev.end())
	require.NoFileExists(t, filepath.Join(dir, ".mscheduler-dev.json"))
}

// closedPipe is what nobody reads any more.
func closedPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestAWorkerWhoseEventsNobodyReadsGoesOn(t *testing.T) {
	needsSignals(t)
	dir := t.TempDir()
	dev := start(t, binary(t, dir, "dev"))
	dev.says("Ctrl-C stops it gracefully")
	cmd := binary(t, dir, "work", "--events", "--allow-exec", "--worker-id", "unread")
	cmd.Stdout = closedPipe(t)
	worker := start(t, cmd)
	worker.says("Ctrl-C stops it gracefully")
	code, _, stderr := run(t, binary(t, dir, "send", "exec", "--specific-worker-ids", "unread", "--key", "k", "--args", `{"argv":["true"]}`))
	require.Equal(t, 0, code, stderr)
	code, _, stderr = run(t, binary(t, dir, "task", "wait", "exec/k", "--timeout", testdb.Patience.String()))
	require.Equal(t, 0, code, stderr)
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	worker.says("stopped: ")
	require.Equal(t, 0, worker.end())

	list := binary(t, dir, "task", "list")
	list.Stdout = closedPipe(t)
	require.Error(t, list.Run())
	require.Equal(t, 1, list.ProcessState.ExitCode(), "it ends by itself")
	require.NoError(t, dev.Process.Signal(os.Interrupt))
	require.Equal(t, 0, dev.end())
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	dev, dir := busyDev(t, "--shutdown-timeout", "10m")
	require.NoError(t, dev.Process.Signal(os.Interrupt))
	dev.says("stopping: waiting at most 10m for 1 task")
	ended := make(chan struct{})
	go func() { // those that come too soon are the first one
		for tick := time.NewTicker(sameWish / 5); ; {
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
				_ = dev.Process.Signal(os.Interrupt) // it may have ended
			}
		}
	}()
	require.Equal(t, 130, dev.end())
	close(ended)

	// The address file is left behind, and nobody is misled by it.
	require.FileExists(t, filepath.Join(dir, ".mscheduler-dev.json"))
	code, _, stderr := run(t, binary(t, dir, "task", "list"))
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "is no longer running")
}

func TestSignalsWithinAMomentOfTheFirstAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2) // as small as the product's: none is kept for later
		stops, ended := 0, false
		go func() {
			awaitSecond(signals, func() { stops++ })
			ended = true
		}()
		for _, after := range []time.Duration{0, 0, 1, sameWish - 2} {
			time.Sleep(after) // of the bubble
			signals <- syscall.SIGTERM
			synctest.Wait()
			require.Equal(t, 1, stops)
			require.False(t, ended)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.False(t, ended, "nobody has asked a second time")
		signals <- syscall.SIGTERM
		synctest.Wait()
		require.True(t, ended)
		require.Equal(t, 1, stops)
	})
}

func TestKilledDevServerLosesNothingOnAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tasks.db")
	dev, dir := busyDev(t, "--path", file)
	require.NoError(t, dev.Process.Kill())
	dev.end()
	again := start(t, binary(t, dir, "dev", "--path", file))
	again.says("is no longer running; replacing its file")
	again.says("Ctrl-C stops it gracefully")
	code, stdout, stderr := run(t, binary(t, dir, "task", "show", "exec/k"))
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "Executing", "its lease has not lapsed yet")
	require.NoError(t, again.Process.Signal(os.Interrupt))
	require.Equal(t, 0, again.end())
}
