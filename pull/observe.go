package pull

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// observer watches the database between fetches while they leave lapsed leases alone. A
// process that fetches every ten seconds would otherwise never know whether the owners of
// short leases could ping in between.
type observer struct {
	store *store.Store
	trust *claim.Trust
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running bool
	types   []string      // of the last fetch that left something
	every   time.Duration // how often to ask
	until   time.Duration // monotonic
}

// observeFor is for how long the database is watched after what was left alone could have
// been taken over: the next fetch is to come in that time.
const observeFor = 30 * time.Second

func newObserver(s *store.Store, trust *claim.Trust) *observer {
	o := &observer{store: s, trust: trust}
	o.life, o.end = context.WithCancel(context.Background())
	return o
}

func (o *observer) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.end()
	o.work.Wait()
}

// observe begins to watch, or goes on, where a fetch of the types left something alone.
func (o *observer) observe(types []string, left claim.LeftAlone) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if left.Wait == 0 || o.closed {
		return
	}
	o.types, o.every = types, left.Every
	o.until = o.store.Local().Monotonic() + left.Wait + observeFor
	if !o.running {
		o.running = true
		o.work.Go(o.run)
	}
}

func (o *observer) run() {
	for {
		types, pause := o.next()
		if pause <= 0 {
			return
		}
		clock.Pause(o.life, pause)
		call, cancel := context.WithTimeout(o.life, observeTime)
		lapse, _, err := o.store.Tasks.NextLapse(call, types)
		cancel()
		switch {
		case err == nil:
			o.trust.Answered()
		case store.Outage(err):
			o.trust.Failed()
		}
		if err == nil && (lapse.IsZero() || lapse.After(o.store.Clock.Now())) {
			o.stop() // somebody took it over, or its owner pinged
		}
	}
}

// observeTime bounds a question to the database.
const observeTime = 5 * time.Second

// next is what to ask for, and after which pause; the pause is zero at the end.
func (o *observer) next() (types []string, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life.Err() != nil || o.store.Local().Monotonic() >= o.until {
		o.running = false
		return nil, 0
	}
	return o.types, o.every
}

func (o *observer) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = 0
}
