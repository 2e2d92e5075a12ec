package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
)

// Command says what a process runs.
type Command struct {
	Name      string // in errors
	Path      string // of the executable
	Args, Env []string
	Dir       string // that it runs in; "" = that of this process
	// Func runs in a goroutine of this process in place of Path. nil = Path runs.
	Func func(ctx context.Context, in io.Reader, out io.Writer) error
	// Log is the file that is made for the standard error. "" = [Process.Output] has its end.
	Log string
	// Line receives each line of the standard output. Its error ends the reading, and is how
	// the process ended. nil = the standard output goes where the standard error goes.
	Line func(line []byte) error
}

// Env returns environ for another process of mscheduler: without the settings of the user's
// own database, and with more.
func Env(environ []string, more ...string) []string {
	var out []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "MSCHEDULER_") || strings.HasPrefix(kv, "MSCHEDULER_TEST_") {
			out = append(out, kv)
		}
	}
	return append(out, more...)
}

// Process is one process, or a goroutine in its place.
type Process struct {
	name, log string
	in        io.WriteCloser
	output    tail
	cmd       *exec.Cmd // nil = a goroutine
	kill      func()
	killed    atomic.Bool
	ended     chan struct{}
	err       error // how it ended; set before ended is closed
}

// Start starts a process. The caller waits for its end, by [Process.Kill] at the latest.
func Start(c Command) (*Process, error) {
	p := &Process{name: c.Name, log: c.Log, ended: make(chan struct{})}
	out, wait, err := p.run(c)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() {
		defer close(p.ended)
		if out != nil {
			p.err = read(out, c.Line)
		}
		if err := wait(); p.err == nil {
			p.err = err
		}
	}()
	return p, nil
}

// run starts what the command says. wait follows the end of out.
func (p *Process) run(c Command) (out io.Reader, wait func() error, err error) {
	if c.Func != nil {
		out, wait = p.runHere(c.Func)
		return out, wait, nil
	}
	p.cmd = exec.Command(c.Path, c.Args...) //nolint:gosec // the callers name binaries of their own
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr = c.Env, c.Dir, &p.output
	p.kill = func() { _ = p.cmd.Process.Kill() } // it may have ended
	ownGroup(p.cmd)
	closeLog := func() error { return nil }
	if c.Log != "" {
		f, err := os.Create(c.Log)
		if err != nil {
			return nil, nil, err
		}
		p.cmd.Stderr, closeLog = f, f.Close
	}
	if p.in, err = p.cmd.StdinPipe(); err == nil && c.Line != nil {
		out, err = p.cmd.StdoutPipe()
	} else {
		p.cmd.Stdout = p.cmd.Stderr
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeLog())
	}
	return out, func() error {
		defer closeLog() //nolint:errcheck // the process is gone, and so is everything it wrote
		if err := p.cmd.Wait(); err != nil {
			return fmt.Errorf("%w%s", err, p.said())
		}
		return nil
	}, nil
}

// runHere runs f in a goroutine. The result of f is the error of its output.
func (p *Process) runHere(f func(context.Context, io.Reader, io.Writer) error) (io.Reader, func() error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	p.in, p.kill = inW, cancel
	go func() {
		err := f(ctx, inR, outW)
		_ = inR.Close() // of a pipe: never fails
		_ = outW.CloseWithError(err)
	}()
	return outR, func() error {
		cancel()
		return outR.Close() // after an error of Line: f is not to wait for a reader
	}
}

// read hands over lines until the output ends. Half a line is the last word of a process
// that was killed.
func read(out io.Reader, take func([]byte) error) error {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = take(line)
		} else if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// PID is the id of the process, which is not a goroutine.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Write writes to the standard input of the process.
func (p *Process) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends the standard input of the process, which is the request to stop.
func (p *Process) Close() error { return p.in.Close() }

// Wait waits for the end of the process, and returns how it ended: nil = by itself, well.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process without a word, also one that is frozen, and waits for its end. A
// second time it does nothing.
func (p *Process) Kill() {
	p.killed.Store(true)
	p.kill()
	<-p.ended
}

// Output is the end of what the process wrote, less the lines that Line received.
func (p *Process) Output() string { return p.output.String() }

// said names what the process wrote, for an error.
func (p *Process) said() string {
	if p.log != "" {
		return "; its log: " + p.log
	}
	if text := p.Output(); text != "" {
		return ": " + text
	}
	return ""
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// kept is the length of a tail.
const kept = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-kept):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.text, nil)))
}
