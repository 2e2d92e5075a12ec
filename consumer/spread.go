package consumer

import (
	"math/rand/v2"
	"sync"
	"time"
)

// The rules by which a worker decides how many tasks it looks for, and where in the
// queue. They are pure; tests and the simulation in spread_test.go call them.

const (
	maxBatch  = 1000
	maxSpread = 64
	// aheadTime is for how long a batch shall last at the measured rate. A fetch has a
	// fixed cost, so the quicker the tasks the larger the batches.
	aheadTime = 500 * time.Millisecond
)

// batchWanted is how many claimed tasks a process wants at hand: as many as it expects
// to start within [aheadTime], at least its free slots, at most [maxBatch].
func batchWanted(freeSlots int, perSecond float64) int {
	return min(maxBatch, max(freeSlots, int(perSecond*aheadTime.Seconds())))
}

// toFetch is how many tasks to look for now. While more than half of what is wanted
// waits already, none: many small fetches cost more than few large ones.
func toFetch(freeSlots, waiting int, perSecond float64) int {
	wanted := batchWanted(freeSlots, perSecond)
	if waiting*2 > wanted {
		return 0
	}
	return wanted - waiting
}

// spread is how far a worker looks past the head of the queue. Workers that fetch at
// once see the same head; one that lost a candidate looks in a window twice as wide, a
// clean fetch makes it narrower by one batch. An uncontended worker keeps exact order.
type spread struct{ window int }

// offset is how many batches to skip.
func (s *spread) offset(r *rand.Rand) int {
	if s.window <= 1 {
		return 0
	}
	return r.IntN(s.window)
}

// learn adapts the window to how a fetch went.
func (s *spread) learn(lost int) {
	if lost > 0 {
		s.window = min(max(s.window, 1)*2, maxSpread)
	} else if s.window > 1 {
		s.window--
	}
}

// rate measures starts a second, smoothed over about a second.
type rate struct {
	mu        sync.Mutex
	at        time.Duration
	started   uint64
	perSecond float64
}

// observe takes the count of starts at a monotonic time.
func (r *rate) observe(now time.Duration, started uint64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == 0 {
		r.at, r.started = now, started
		return 0
	}
	passed := now - r.at
	if passed < 50*time.Millisecond {
		return r.perSecond
	}
	current := float64(started-r.started) / passed.Seconds()
	weight := min(1, passed.Seconds())
	r.perSecond += weight * (current - r.perSecond)
	r.at, r.started = now, started
	return r.perSecond
}
