package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/fleet"
)

// How long the target takes for a call: some work, not always the same.
const (
	shortestCall = 40 * time.Millisecond
	longestCall  = 160 * time.Millisecond
)

// target is the HTTP server that the tasks call. An effect is a call that it answered. The
// fleet's lock guards what it knows.
type target struct {
	*fleet.Fleet
	server   *http.Server
	listener net.Listener
	served   chan error

	effects map[string]*effect            // by task
	done    int                           // tasks with an effect, without those of the flow
	flying  map[string]map[*call]struct{} // calls in flight, by worker
	holds   map[string]chan struct{}      // by worker: closed when its calls may go on
	pinned  map[string]chan struct{}      // by task: closed when its calls may go on
}

type effect struct {
	count  int
	newest string // the greatest fencing token that called
	late   int    // answered after a call with a greater token had come
}

// call is one request in flight.
type call struct {
	holding
	*effect
	key   string
	token string
	held  bool
}

func startTarget(f *fleet.Fleet) (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the target: %w", err)
	}
	t := &target{
		Fleet: f, listener: l, served: make(chan error, 1),
		effects: map[string]*effect{}, flying: map[string]map[*call]struct{}{}, holds: map[string]chan struct{}{}, pinned: map[string]chan struct{}{},
	}
	t.server = &http.Server{Handler: http.HandlerFunc(t.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { t.served <- t.server.Serve(l) }()
	return t, nil
}

func (t *target) url(task string) string {
	return "http://" + t.listener.Addr().String() + "/effect/" + task
}

func (t *target) close() {
	t.Set(func() {
		for worker := range t.holds {
			t.release(worker)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if errors.Is(t.server.Shutdown(ctx), context.DeadlineExceeded) {
		_ = t.server.Close() // calls that hang are of no interest any more
	}
	<-t.served
}

func (t *target) serve(w http.ResponseWriter, r *http.Request) {
	key, worker := strings.TrimPrefix(r.URL.Path, "/effect/"), r.Header.Get("Mscheduler-Worker-Id")
	c := &call{holding: holding{task: taskID(key)}, key: key, token: r.Header.Get("Mscheduler-Fencing-Token")}
	_, c.exec, _ = strings.Cut(strings.TrimPrefix(r.Header.Get("Mscheduler-Execution-Id"), c.task+"@"), "@") // behind the generation
	t.Set(func() { t.arrive(key, worker, c) })
	defer t.Set(func() { delete(t.flying[worker], c) })
	if !clock.Pause(r.Context(), shortestCall+rand.N(longestCall-shortestCall)) {
		return // the caller is dead: nothing happened
	}
	var gate chan struct{} // nil when the worker's calls are not held
	t.Set(func() {
		if gate = t.pinned[key]; gate == nil {
			gate = t.holds[worker]
		}
		c.held = gate != nil
	})
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
	}
	var n int
	t.Set(func() { n = t.happen(c) })
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"task":%q,"effect":%d}`, key, n) // a caller that is gone does not hear it
}

func (t *target) arrive(key, worker string, c *call) {
	if c.effect = t.effects[key]; c.effect == nil {
		c.effect = &effect{}
		t.effects[key] = c.effect
	}
	c.newest = max(c.newest, c.token)
	if t.flying[worker] == nil {
		t.flying[worker] = map[*call]struct{}{}
	}
	t.flying[worker][c] = struct{}{}
}

func (t *target) happen(c *call) int {
	if c.count++; c.count == 1 && !strings.HasPrefix(c.key, flowKeys) {
		t.done++
	}
	if c.token < c.newest {
		c.late++
	}
	return c.count
}

// release answers the calls that are held.
func (t *target) release(worker string) {
	if gate := t.holds[worker]; gate != nil {
		close(gate)
		delete(t.holds, worker)
	}
}

// held are the executions of the worker whose calls are held now.
func (t *target) held(worker string) (all []holding) {
	for c := range t.flying[worker] {
		if c.held {
			all = append(all, c.holding)
		}
	}
	return all
}

// superseded says whether every held call of the worker is late by now: a call with a
// greater fencing token has come for the same task.
func (t *target) superseded(worker string) bool {
	for c := range t.flying[worker] {
		if c.held && c.newest <= c.token {
			return false
		}
	}
	return true
}
