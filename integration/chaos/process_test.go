//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/fleet"
)

// process is a process of the deployment. When it has been killed, or has ended by itself, another takes its place.
type process struct {
	w    *world
	role settings
	net  *network

	mu      sync.Mutex
	now     *fleet.Process
	started int
	busy    bool         // the nemesis has it
	ending  *atomic.Bool // the present one is to end
}

// join adds a process.
func (w *world) join(role settings) error {
	n, err := w.members.way()
	if err != nil {
		return err
	}
	p := &process{w: w, role: role, net: n}
	p.role.URI, p.role.Database, p.role.Target = n.uri, w.db.Name(), w.effects.URL
	w.processes = append(w.processes, p)
	return p.start(false)
}

// start starts it, at times under its old name.
func (p *process) start(sameName bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !sameName {
		p.started++
	}
	role := p.role
	role.Name = p.name()
	told, err := json.Marshal(role)
	if err != nil {
		return err
	}
	p.now, err = fleet.Start(fleet.Command{Name: role.Name, Path: self, Args: []string{asChild, string(told)}, Env: os.Environ(), Line: p.hear})
	if err != nil {
		return err
	}
	ending := new(atomic.Bool)
	p.ending = ending
	p.w.note(role.Name, "starts")
	started := p.now
	p.w.watching.Go(func() { p.watch(started, role.Name, ending) })
	return nil
}

// name is that of the present process.
func (p *process) name() string { return fmt.Sprintf("%s.%d", p.role.Name, p.started) }

// watch waits for the end of the process, which the nemesis causes.
func (p *process) watch(now *fleet.Process, name string, ending *atomic.Bool) {
	err := now.Wait()
	if !ending.Load() {
		p.w.violated("", "%s ended by itself: %v\n%s", name, err, now.Output())
	}
}

// hear takes what the process reports.
func (p *process) hear(line []byte) error {
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("a line that is no report: %q", line)
	}
	if r.Wrong != "" {
		p.w.violated("", "a request of %s is refused: %s", p.role.Name, r.Wrong)
		return nil
	}
	p.w.hear(r)
	return nil
}

// take has the nemesis hold the process; false = it holds it already.
func (p *process) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		return false
	}
	p.busy = true
	return true
}

func (p *process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
}

// end notes that the end of the process is meant.
func (p *process) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending.Store(true)
}

// kill kills the process, and starts another one later.
func (p *process) kill(ctx context.Context, later time.Duration, sameName bool) error {
	p.end()
	p.now.Kill()
	p.w.killed(p.name())
	clock.Pause(ctx, later)
	err := p.start(sameName)
	p.release()
	return err
}

// freeze stops the process where it stands, for so long.
func (p *process) freeze(ctx context.Context, lasts time.Duration) error {
	defer p.release()
	if err := p.now.Freeze(); err != nil {
		return err
	}
	clock.Pause(ctx, lasts)
	return p.now.Thaw()
}

// setClock moves the clock that the product gets.
func (p *process) setClock(by time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.now, by)
	return err
}

// stop ends the process as an operator does.
func (p *process) stop() error {
	p.end()
	_ = p.now.Close() // it may have ended
	ended := make(chan error, 1)
	go func() { ended <- p.now.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s did not end well: %w\n%s", p.role.Name, err, p.now.Output())
		}
		return nil
	case <-time.After(patience):
		p.now.Kill()
		return fmt.Errorf("%s does not stop\n%s", p.role.Name, p.now.Output())
	}
}
