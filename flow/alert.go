package flow

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
)

const (
	// maxAlerts is how many alerts wait. The log names those beyond.
	maxAlerts = 10_000
	// alertTime is the deadline of one call, and alertPatience how long a stop waits for calls.
	alertTime, alertPatience = time.Minute, 5 * time.Second
)

type alert struct {
	flow         *graph.Flow
	node, reason string
}

// alerts calls Config.OnPending, once at a time and beside the engine: the function may take its
// time, and the planners of a process share the engine.
type alerts struct {
	call    func(ctx context.Context, f *graph.Flow, node, reason string) // nil = none
	mu      sync.Mutex
	waiting []alert
	idle    chan struct{} // closed when the calls are made; nil = none are
}

func (a *alerts) add(one alert) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.call == nil || len(a.waiting) >= maxAlerts {
		return
	}
	if a.waiting = append(a.waiting, one); a.idle == nil {
		a.idle = make(chan struct{})
		go a.run()
	}
}

func (a *alerts) run() {
	for {
		a.mu.Lock()
		if len(a.waiting) == 0 {
			close(a.idle)
			a.idle = nil
			a.mu.Unlock()
			return
		}
		one := a.waiting[0]
		a.waiting = a.waiting[1:]
		a.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), alertTime)
		a.call(ctx, one.flow, one.node, one.reason)
		cancel()
	}
}

// wait waits for the calls, but not long.
func (a *alerts) wait() {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(alertPatience):
	}
}
