package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/httpcall"
)

const (
	// endGrace is what a program has between the request to end and the kill, and how
	// long its output is waited for once it has ended: a process that it left behind
	// may hold that open for ever.
	endGrace = 2 * time.Second
	// tailBytes of the output go into an error.
	tailBytes = 2 << 10
)

type execHandler struct {
	workerID string
	limit    int
	env      []string
}

func (h *execHandler) handle(ctx context.Context, t *consumer.Task[json.RawMessage]) (ExecResult, error) {
	var args ExecArgs
	if err := decode(t.Args, &args, false); err != nil {
		return ExecResult{}, consumer.Fatal(err)
	}
	return h.run(ctx, &args, callerOf(h.workerID, t.Execution))
}

var errRunTimeout = errors.New("the program's timeout")

// run runs the program to its end. The end of ctx ends the whole process group: with a
// request first, so that it can tidy up, and at once when the lease is lost, because
// another worker begins the same.
func (h *execHandler) run(ctx context.Context, a *ExecArgs, by caller) (ExecResult, error) {
	if a.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(a.TimeoutMS)*time.Millisecond, errRunTimeout)
		defer cancel()
	}
	out := &tail{limit: h.limit}
	cmd := exec.CommandContext(ctx, a.Argv[0], a.Argv[1:]...)
	cmd.Dir = a.Dir
	cmd.Env = append(append(append([]string{}, h.env...), pairs(a.Env)...), by.environ()...)
	cmd.Stdout, cmd.Stderr = out, out
	if data, _ := textOrJSON(a.Stdin); data != nil {
		cmd.Stdin = bytes.NewReader(data)
	}
	group := ownGroup(cmd)
	cmd.Cancel = func() error {
		if errors.Is(context.Cause(ctx), consumer.ErrLeaseLost) {
			return group.kill()
		}
		return group.terminate()
	}
	cmd.WaitDelay = endGrace
	if err := cmd.Start(); err != nil {
		return ExecResult{}, startError(a, err)
	}
	err := cmd.Wait()
	_ = group.kill() // what is left of the group; usually nothing
	return h.result(ctx, a, cmd, out, err)
}

func (h *execHandler) result(ctx context.Context, a *ExecArgs, cmd *exec.Cmd, out *tail, err error) (ExecResult, error) {
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the program itself ended well; something it started held the output
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(cause, errRunTimeout):
		return ExecResult{}, consumer.TimedOut(fmt.Errorf("%s: still running after timeout_ms (%d ms)%s", a.Argv[0], a.TimeoutMS, out.excerpt()))
	case cause != nil:
		return ExecResult{}, fmt.Errorf("%s: ended: %w", a.Argv[0], cause)
	default:
		return ExecResult{}, fmt.Errorf("%s: %w%s", a.Argv[0], err, out.excerpt())
	}
	res := ExecResult{ExitCode: cmd.ProcessState.ExitCode(), Truncated: out.cut}
	res.Output, res.Encoding = httpcall.AsText(out.bytes(), false)
	return res, nil
}

// startError is worth a retry: another worker may have what this one lacks.
func startError(a *ExecArgs, err error) error {
	if a.Dir != "" {
		if st, serr := os.Stat(a.Dir); serr != nil || !st.IsDir() {
			return fmt.Errorf("args.dir: this worker has no directory %s", a.Dir)
		}
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("args.argv[0]: this worker has no program %s", a.Argv[0])
	}
	return fmt.Errorf("starting %s: %w", a.Argv[0], err)
}

func pairs(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}

// tail keeps the last bytes that are written to it. The package os/exec writes stdout
// and stderr through one goroutine when both are the same writer.
type tail struct {
	limit int
	buf   []byte
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.limit { // shift seldom
		t.trim()
	}
	return len(p), nil
}

func (t *tail) trim() {
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
}

// bytes is the tail, which begins at a rune where it was cut.
func (t *tail) bytes() []byte {
	t.trim()
	b := t.buf
	if t.cut {
		for i := 0; i < 3 && len(b) > 0 && b[0]&0xC0 == 0x80; i++ {
			b = b[1:]
		}
	}
	return b
}

// excerpt is the end of the output as a part of an error.
func (t *tail) excerpt() string {
	s := strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(string(t.bytes()), "\x00", ""), "�"))
	if len(s) > tailBytes {
		s = "…" + strings.ToValidUTF8(s[len(s)-tailBytes:], "")
	}
	if s == "" {
		return ""
	}
	return ": " + s
}
