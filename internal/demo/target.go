package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// How long the target takes for a call: some work, not always the same.
const (
	shortestCall = 40 * time.Millisecond
	longestCall  = 160 * time.Millisecond
)

// target is the HTTP server that the tasks call. An effect is a call that it answered.
type target struct {
	server   *http.Server
	listener net.Listener
	served   chan error

	mu      sync.Mutex
	effects map[string]*effect          // by task
	flying  map[string]map[string]*call // calls in flight, by worker and execution
	holds   map[string]chan struct{}    // by worker: closed when its calls may go on
	changed chan struct{}               // closed and replaced at every change
}

type effect struct {
	count  int
	newest string // the greatest fencing token that called
	late   int    // answered after a call with a greater token had come
}

// call is one request in flight.
type call struct {
	task  string
	token string
	held  bool
}

func startTarget() (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the target: %w", err)
	}
	t := &target{
		listener: l, served: make(chan error, 1), effects: map[string]*effect{}, flying: map[string]map[string]*call{},
		holds: map[string]chan struct{}{}, changed: make(chan struct{}),
	}
	t.server = &http.Server{Handler: http.HandlerFunc(t.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { t.served <- t.server.Serve(l) }()
	return t, nil
}

func (t *target) url(task string) string {
	return "http://" + t.listener.Addr().String() + "/effect/" + task
}

func (t *target) close() {
	t.mu.Lock()
	for worker := range t.holds {
		t.letGo(worker)
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if errors.Is(t.server.Shutdown(ctx), context.DeadlineExceeded) {
		_ = t.server.Close() // calls that hang are of no interest any more
	}
	<-t.served
}

func (t *target) serve(w http.ResponseWriter, r *http.Request) {
	task := strings.TrimPrefix(r.URL.Path, "/effect/")
	worker, execution := r.Header.Get("Mscheduler-Worker-Id"), r.Header.Get("Mscheduler-Execution-Id")
	token := r.Header.Get("Mscheduler-Fencing-Token")
	c := t.arrive(worker, execution, task, token)
	defer t.leave(worker, execution)
	if !clock.Pause(r.Context(), shortestCall+rand.N(longestCall-shortestCall)) {
		return // the caller is dead: nothing happened
	}
	if gate := t.gate(worker, c); gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
	}
	n := t.happen(task, token)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"task":%q,"effect":%d}`, task, n) // a caller that is gone does not hear it
}

func (t *target) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *target) arrive(worker, execution, task, token string) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &call{task: task, token: token}
	if t.flying[worker] == nil {
		t.flying[worker] = map[string]*call{}
	}
	t.flying[worker][execution] = c
	e := t.effects[task]
	if e == nil {
		e = &effect{}
		t.effects[task] = e
	}
	e.newest = max(e.newest, token)
	t.change()
	return c
}

func (t *target) leave(worker, execution string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.flying[worker], execution)
	t.change()
}

func (t *target) happen(task, token string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.effects[task]
	e.count++
	if token < e.newest {
		e.late++
	}
	t.change()
	return e.count
}

// gate is what a held call waits for; nil when the worker's calls are not held.
func (t *target) gate(worker string, c *call) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	gate := t.holds[worker]
	c.held = gate != nil
	t.change()
	return gate
}

// hold keeps the worker's calls open from now on.
func (t *target) hold(worker string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[worker] = make(chan struct{})
}

// release answers the calls that are held.
func (t *target) release(worker string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.letGo(worker)
}

func (t *target) letGo(worker string) {
	if gate := t.holds[worker]; gate != nil {
		close(gate)
		delete(t.holds, worker)
	}
}

// held are the executions of the worker whose calls are held now.
func (t *target) held(worker string) []holding {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []holding
	for execution, c := range t.flying[worker] {
		if c.held {
			_, exec, _ := strings.Cut(strings.TrimPrefix(execution, taskID(c.task)+"@"), "@") // behind the generation
			all = append(all, holding{taskID(c.task), exec})
		}
	}
	return all
}

// superseded says whether every held call of the worker is late by now: a call with a
// greater fencing token has come for the same task.
func (t *target) superseded(worker string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.flying[worker] {
		if c.held && t.effects[c.task].newest <= c.token {
			return false
		}
	}
	return true
}

func (t *target) inFlight(worker string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.flying[worker])
}

// happened is how many tasks had their effect.
func (t *target) happened() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.effects {
		if e.count > 0 {
			n++
		}
	}
	return n
}

// moved is closed when something changes at the target.
func (t *target) moved() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}
