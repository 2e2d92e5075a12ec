package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// dismissTime is how long a worker has to stop before it is killed.
const dismissTime = 15 * time.Second

// crew is the workers of a scenario and what they reported.
type crew struct {
	cfg *Config

	mu      sync.Mutex
	members []*member
	changed chan struct{}
	late    []float64
	sent    []float64
	starts  []start
	fetches []fetch
}

// member is one worker.
type member struct {
	id    string
	in    io.WriteCloser
	kill  func()
	ended chan struct{} // closed when it is gone
	err   error         // how it ended; set before

	// below crew.mu
	latest  report
	ready   bool
	started bool
	leaving bool // it was told to end
}

func newCrew(c *Config) *crew { return &crew{cfg: c, changed: make(chan struct{})} }

// hireHere starts a worker in this process.
func (c *crew) hireHere(s spec) (*member, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{id: s.WorkerID, in: inW, kill: cancel, ended: make(chan struct{})}
	go func() {
		err := Work(ctx, inR, outW)
		_ = inR.Close() // of a pipe: never fails
		_ = outW.CloseWithError(err)
	}()
	go func() {
		defer close(m.ended)
		defer cancel()
		m.err = c.read(m, outR)
	}()
	return m, c.brief(m, s)
}

// hire starts a worker in a process of its own, of another build where one is named.
func (c *crew) hire(s spec, executable string) (*member, error) {
	if executable == "" {
		executable = c.cfg.Executable
	}
	if executable == "" {
		return nil, errors.New("this scenario starts the binary again as workers, and the system does not say where it is")
	}
	s.Own = true
	cmd := exec.Command(executable, c.cfg.WorkerArgs...)
	cmd.Env = c.cfg.WorkerEnv
	var stderr tail
	cmd.Stderr = &stderr
	ownGroup(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	m := &member{id: s.WorkerID, in: in, kill: func() { _ = cmd.Process.Kill() }, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		m.err = c.read(m, out)
		if err := cmd.Wait(); m.err == nil && err != nil {
			m.err = fmt.Errorf("%w: %s", err, stderr.String())
		}
	}()
	return m, c.brief(m, s)
}

// brief tells a worker what to do.
func (c *crew) brief(m *member, s spec) error {
	c.set(func() { c.members = append(c.members, m) })
	line, err := json.Marshal(s)
	if err == nil {
		_, err = m.in.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", m.id, err)
	}
	return nil
}

// read takes a worker's reports until its pipe ends.
func (c *crew) read(m *member, out io.Reader) error {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		var r report
		if err == nil && json.Unmarshal(line, &r) == nil {
			if r.Failed != "" {
				return fmt.Errorf("worker %s: %s", m.id, r.Failed)
			}
			c.take(m, r)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("worker %s: %w", m.id, err)
		}
	}
}

func (c *crew) take(m *member, r report) {
	c.set(func() {
		c.late, c.sent = append(c.late, r.Late...), append(c.sent, r.Sent...)
		c.starts, c.fetches = append(c.starts, r.Starts...), append(c.fetches, r.Fetches...)
		if r.Ready {
			m.ready = true
			return
		}
		r.Late, r.Sent, r.Starts, r.Fetches = nil, nil, nil, nil
		m.latest = r
	})
}

// set changes something under the lock and tells who waits.
func (c *crew) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until met, which is called under the lock, or until a worker is broken.
func (c *crew) await(ctx context.Context, met func() bool) error {
	for {
		c.mu.Lock()
		ok, changed, err := met(), c.changed, c.broken()
		c.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond): // for those that ended without a word
		}
	}
}

// broken is an error when a worker ended by itself. The caller holds mu.
func (c *crew) broken() error {
	for _, m := range c.members {
		select {
		case <-m.ended:
			if !m.leaving {
				return errors.Join(fmt.Errorf("worker %s ended by itself", m.id), m.err)
			}
		default:
		}
	}
	return nil
}

// begin waits until all are ready, and gives those that wait the word.
func (c *crew) begin(ctx context.Context) (began time.Time, err error) {
	err = c.await(ctx, func() bool {
		for _, m := range c.members {
			if !m.ready {
				return false
			}
		}
		return true
	})
	if err != nil {
		return began, err
	}
	began = c.cfg.Clock.Now()
	for _, m := range c.members {
		if m.started {
			continue
		}
		m.started = true
		if _, err := io.WriteString(m.in, "go\n"); err != nil {
			return began, fmt.Errorf("starting %s: %w", m.id, err)
		}
	}
	return began, nil
}

// sum is the sum of what all workers counted. The caller holds mu.
func (c *crew) sum() (t totals) {
	for _, m := range c.members {
		t.add(m.latest.totals)
	}
	return t
}

func (c *crew) totals() totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum()
}

// watching counts the workers with a change stream.
func (c *crew) watching() (n int) {
	for _, m := range c.members {
		if m.latest.Watching {
			n++
		}
	}
	return n
}

// murder kills a worker without a word.
func (c *crew) murder(m *member) {
	c.set(func() { m.leaving = true })
	m.kill()
	<-m.ended
}

// dismiss ends all workers; who does not stop in time is killed.
func (c *crew) dismiss() {
	c.set(func() {
		for _, m := range c.members {
			m.leaving = true
		}
	})
	for _, m := range c.members {
		_ = m.in.Close() // the end of the pipe is the request
	}
	limit := time.NewTimer(dismissTime)
	defer limit.Stop()
	for _, m := range c.members {
		select {
		case <-m.ended:
		case <-limit.C:
			for _, m := range c.members {
				m.kill()
			}
			<-m.ended
		}
	}
}

// tail keeps the end of what a worker wrote to stderr.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-2000):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.b, nil)))
}
