package pull

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// known makes the workers that fetch known to others, as heartbeats do the consumers. It writes a worker's
// document if the worker asks for something new, and otherwise as seldom as a heartbeat.
type known struct {
	store *store.Store
	log   zerolog.Logger
	warns clock.Seldom

	mu      sync.Mutex
	workers map[string]*knownWorker
}

// knownWorker is a worker as this process knows it.
type knownWorker struct {
	asked   []asked       // what it has asked for lately; a worker may fetch in several threads
	told    string        // what was written of that
	written time.Duration // monotonic; 0 = never
}

// asked is what a fetch asks for.
type asked struct {
	types []string // none = all that the conditions allow
	only  lifecycle.Conditions
	at    time.Duration // monotonic: of the last such fetch
}

const (
	// changeEvery is the least time between two writes about a worker that asks for ever new things.
	changeEvery = 5 * time.Second
	// askedFor is for how long a worker that asked for something counts as one that asks for it.
	askedFor = 3 * store.HeartbeatInterval
	// mostAsked and mostKnown bound the memory of a process.
	mostAsked = 20
	mostKnown = 10_000
)

// fetches notes what a worker fetches. An error is logged: it must not keep the worker from its tasks.
func (k *known) fetches(ctx context.Context, id string, types []string, only *lifecycle.Conditions) {
	all, write := k.note(id, asked{types: types, only: *only, at: k.store.Local().Monotonic()})
	if !write {
		return
	}
	k.write(ctx, id, func(ctx context.Context) error {
		if lifecycle.Unconditional(&all.only) {
			return k.store.Workers.Pulls(ctx, id, all.types, nil)
		}
		return k.store.Workers.Pulls(ctx, id, all.types, &all.only)
	})
}

// pings notes that a worker is alive, which may be too busy to fetch.
func (k *known) pings(ctx context.Context, id string) {
	now := k.store.Local().Monotonic()
	k.mu.Lock()
	w := k.worker(id)
	write := w.written == 0 || now-w.written >= store.HeartbeatInterval
	if write {
		w.written = now
	}
	k.mu.Unlock()
	if write {
		k.write(ctx, id, func(ctx context.Context) error { return k.store.Workers.StillPulls(ctx, id) })
	}
}

func (k *known) write(ctx context.Context, id string, write func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, observeTime)
	defer cancel()
	if err := write(ctx); err != nil && k.warns.Again("", k.store.Local()) {
		k.log.Warn().Err(err).Str("worker_id", id).Msg("could not note that a worker pulls; it may seem that nobody serves its types")
	}
}

// note returns all that the worker has asked for lately, and whether to write it now.
func (k *known) note(id string, a asked) (all asked, write bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.worker(id)
	key := a.key()
	w.asked = slices.DeleteFunc(w.asked, func(b asked) bool { return a.at-b.at >= askedFor || b.key() == key })
	w.asked = append(w.asked[max(0, len(w.asked)-mostAsked+1):], a)
	all = together(w.asked)
	due := store.HeartbeatInterval
	if w.told != all.key() {
		due = changeEvery
	}
	if w.told != "" && a.at-w.written < due {
		return all, false
	}
	w.told, w.written = all.key(), a.at
	return all, true
}

// worker is what is known of a worker. The caller holds mu.
func (k *known) worker(id string) *knownWorker {
	w := k.workers[id]
	if w == nil {
		if k.workers == nil || len(k.workers) >= mostKnown {
			k.workers = map[string]*knownWorker{}
		}
		w = &knownWorker{}
		k.workers[id] = w
	}
	return w
}

func (a *asked) key() string { return fmt.Sprintf("%q %q", a.types, a.only) }

// together is one fetch that asks for at least what all of them ask for.
func together(all []asked) (sum asked) {
	either := func(values func(*asked) *[]string) {
		to := values(&sum)
		for i := range all {
			some := *values(&all[i])
			if len(some) == 0 { // anything
				*to = nil
				return
			}
			*to = append(*to, some...)
		}
		slices.Sort(*to)
		*to = slices.Compact(*to)
	}
	either(func(a *asked) *[]string { return &a.types })
	either(func(a *asked) *[]string { return &a.only.Tenants })
	either(func(a *asked) *[]string { return &a.only.Categories })
	either(func(a *asked) *[]string { return &a.only.Creators })
	return sum
}
