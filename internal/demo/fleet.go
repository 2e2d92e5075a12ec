package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is what a worker reports: the fields of consumer.Event that the demo needs.
type event struct {
	Kind     string    `json:"kind"`
	At       time.Time `json:"at"`
	WorkerID string    `json:"worker_id"`
	TaskID   string    `json:"task_id"`
	ExecID   string    `json:"exec_id"`
	Previous string    `json:"previous"`
	Outcome  string    `json:"outcome"`
}

// state of a worker process, as it is shown.
type state string

const (
	starting state = "starting"
	working  state = "working"
	killed   state = "killed"
	frozen   state = "frozen"
	stopped  state = "stopped"
)

// worker is one process.
type worker struct {
	id    string
	cmd   *exec.Cmd
	stdin io.Closer
	log   *os.File
	ended chan struct{} // closed when the process is gone
	err   error         // how it ended; set before ended is closed

	// below fleet.mu
	state    state
	finished int             // executions it ended itself
	fenced   int             // of its late results, refused
	taken    map[string]int  // how many it took over, by whose they were
	reports  map[string]bool // the executions of which it said one or the other
}

// fleet is all worker processes and what they reported.
type fleet struct {
	exiting sync.WaitGroup

	mu      sync.Mutex
	workers []*worker
	started map[string]*calls              // by task
	taken   map[string]map[string]struct{} // by previous worker: the tasks that it lost
	lateOK  int                            // refused results that were successes
	dropped int                            // events that a worker could not report
	changed chan struct{}
	onEvent func(event)
}

// calls of a task's handler, as the workers reported them.
type calls struct {
	first, last time.Time
	by          string // whose the last was
}

// holding is an execution that a worker has.
type holding struct{ task, exec string }

func (h holding) String() string { return h.task + " by execution " + h.exec }

func newFleet(onEvent func(event)) *fleet {
	return &fleet{started: map[string]*calls{}, taken: map[string]map[string]struct{}{}, changed: make(chan struct{}), onEvent: onEvent}
}

// start starts one worker process: this binary again, as `work`. The database's
// address goes by the environment, where other users cannot read it.
func (f *fleet) start(c Config, dir, id, uri, database string) error {
	log, err := os.Create(filepath.Join(dir, id+".log"))
	if err != nil {
		return fmt.Errorf("starting %s: %w", id, err)
	}
	// A worker that is idle looks for lapsed leases with its polls: with leases this
	// short the usual 30 s would be a long time to watch.
	cmd := exec.Command(c.Executable, "work", "--worker-id", id, "--concurrency", fmt.Sprint(c.Concurrency), "--poll-interval", "1s",
		"--events", "--stop-with-stdin", "--log-level", "info")
	cmd.Env = append(withoutSettings(c.Environ), "MSCHEDULER_MONGODB_URI="+uri, "MSCHEDULER_DATABASE="+database)
	cmd.Stderr = log
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting %s: %w", id, errors.Join(err, log.Close()))
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", id, errors.Join(err, log.Close()))
	}
	w := &worker{id: id, cmd: cmd, stdin: stdin, log: log, state: starting, taken: map[string]int{}, reports: map[string]bool{}, ended: make(chan struct{})}
	f.set(func() { f.workers = append(f.workers, w) })
	f.exiting.Go(func() {
		f.read(w, stdout)
		w.err = cmd.Wait()
		_ = log.Close() // the process is gone, and so is everything it wrote
		f.set(func() {
			if w.state != killed {
				w.state = stopped
			}
		})
		close(w.ended)
	})
	return nil
}

// withoutSettings keeps settings of the user's own database away from the workers.
func withoutSettings(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "MSCHEDULER_") || strings.HasPrefix(kv, "MSCHEDULER_TEST_") {
			out = append(out, kv)
		}
	}
	return out
}

// read takes the events of a worker until its stdout ends.
func (f *fleet) read(w *worker, r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil { // half a line is the last word of one that was killed
			f.take(w, e)
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long: let the worker go on
}

func (f *fleet) take(w *worker, e event) {
	f.set(func() {
		switch e.Kind {
		case "started":
			f.called(w, e)
		case "finished":
			w.finished++
			w.reports[e.ExecID] = true
		case "fenced":
			w.fenced++
			w.reports[e.ExecID] = true
			if e.Outcome == "" {
				f.lateOK++
			}
		case "taken_over", "lapsed":
			if f.taken[e.Previous] == nil {
				f.taken[e.Previous] = map[string]struct{}{}
			}
			f.taken[e.Previous][e.TaskID] = struct{}{}
			w.taken[e.Previous]++
		case "dropped":
			f.dropped++
		}
	})
	f.onEvent(e)
}

// set changes something under the lock and tells who waits.
func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// moved is closed when something changes in the fleet.
func (f *fleet) moved() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fleet) stateOf(w *worker) state {
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.state
}

func (f *fleet) become(w *worker, s state) { f.set(func() { w.state = s }) }

func (f *fleet) called(w *worker, e event) {
	c := f.started[e.TaskID]
	if c == nil {
		c = &calls{first: e.At}
		f.started[e.TaskID] = c
	}
	if e.At.Before(c.first) {
		c.first = e.At
	}
	if e.At.After(c.last) {
		c.last, c.by = e.At, w.id
	}
}

// heldStill is what the worker has still of this, as far as anybody reported: others did not
// find its lease lapsed, nor call the handler after it; and it did not give it back.
func (f *fleet) heldStill(w *worker, held []holding) (left []holding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range held {
		_, lapsed := f.taken[w.id][h.task]
		if c := f.started[h.task]; !lapsed && !w.reports[h.exec] && (c == nil || c.by == w.id) {
			left = append(left, h)
		}
	}
	return left
}

// unreported is what of this the worker has not said of how it ended.
func (f *fleet) unreported(w *worker, held []holding) (left []holding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range held {
		if !w.reports[h.exec] {
			left = append(left, h)
		}
	}
	return left
}

func (f *fleet) fencedOf(w *worker) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.fenced
}

// all are the workers that were started.
func (f *fleet) all() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.workers)
}

// live are the workers that work now.
func (f *fleet) live() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*worker
	for _, w := range f.workers {
		if w.state == working {
			out = append(out, w)
		}
	}
	return out
}

// broken is an error when a worker ended by itself.
func (f *fleet) broken() error {
	for _, w := range f.all() {
		select {
		case <-w.ended:
			if f.stateOf(w) != killed {
				if w.err == nil {
					return fmt.Errorf("%s ended by itself; its log: %s", w.id, w.log.Name())
				}
				return fmt.Errorf("%s ended by itself (%w); its log: %s", w.id, w.err, w.log.Name())
			}
		default:
		}
	}
	return nil
}

// stop asks the workers that live to stop, and waits; those that do not are killed.
func (f *fleet) stop(ctx context.Context) error {
	var errs []error
	for _, w := range f.live() {
		_ = w.stdin.Close() // its end is the request
	}
	for _, w := range f.all() {
		select {
		case <-w.ended:
			if f.stateOf(w) != killed && w.err != nil {
				errs = append(errs, fmt.Errorf("%s did not stop cleanly: %w; its log: %s", w.id, w.err, w.log.Name()))
			}
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s did not stop in time; its log: %s", w.id, w.log.Name()))
		}
	}
	f.end()
	return errors.Join(errs...)
}

// end makes sure that no process is left.
func (f *fleet) end() {
	for _, w := range f.all() {
		select {
		case <-w.ended:
		default:
			_ = w.cmd.Process.Kill() // also of one that is frozen
		}
	}
	f.exiting.Wait()
}
