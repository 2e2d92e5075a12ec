package consumer

import (
	"math/rand/v2"
	"sync"
	"time"
)

// The rules by which a worker decides how many tasks it looks for, and where in the
// queue. They are pure; tests and the simulation in spread_test.go call them.

const (
	maxBatch = 1000
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
// waits already, none: many small fetches cost more than few large ones. For the same
// reason quick tasks are fetched a whole batch at a time, beside the rest that keeps the
// handlers busy meanwhile.
func toFetch(freeSlots, waiting int, perSecond float64) int {
	wanted := batchWanted(freeSlots, perSecond)
	switch {
	case waiting > enough(freeSlots, perSecond):
		return 0
	case wanted > freeSlots:
		return wanted
	default:
		return wanted - waiting
	}
}

// enough is how many tasks may wait for a slot when more are looked for.
func enough(freeSlots int, perSecond float64) int { return batchWanted(freeSlots, perSecond) / 2 }

// spread is where in the queue a worker looks. Workers that fetch at once see the same
// head; one that lost a candidate chooses its batch at random among several for each
// worker of the fleet, and among twice as many after the next loss; a clean fetch narrows
// that. An uncontended worker keeps exact order. Where the queue is not deep enough for so
// many batches, the batches get smaller: at the end of a backlog everybody takes a few.
type spread struct {
	window int // how many batches it chooses among; 0 and 1: only the head
	depth  int // where the queue ended when that was seen; 0 = not known
}

const (
	maxSpread = 128
	// perWorker is how many batches each worker of the fleet adds to the window: of 16
	// that choose among 64, one in nine meets another.
	perWorker = 4
	// maxSkip bounds how many tasks a fetch passes over: each is an index key to walk.
	maxSkip    = 16_000
	leastShare = 2
)

// crowd expects so many workers to fetch at once, as when a fleet starts on a backlog.
func (s *spread) crowd(workers int) {
	if workers > 1 {
		s.window = min(max(s.window, perWorker*workers), maxSpread)
	}
}

// look is how many tasks to skip and how many to read, where n are wanted.
func (s *spread) look(n int, r *rand.Rand) (skip, take int) {
	switch {
	case s.window <= 1:
		return 0, n
	case s.depth == 0:
		take = min(n, maxSkip/s.window)
		return r.IntN(s.window) * take, take
	default:
		take = min(n, max(leastShare, s.depth/s.window))
		return r.IntN(max(1, s.depth-take+1)), take
	}
}

// saw notes what was read there: fewer than asked for are the end of the queue.
func (s *spread) saw(skip, take, found int) {
	switch {
	case found == 0 && skip == 0:
		*s = spread{} // nothing to do, so nobody to fight with
	case found < take:
		s.depth = max(1, skip+found)
	case skip+take >= s.depth:
		s.depth = 0 // it goes on beyond
	}
}

// learn adapts the window to how a claim went, in a fleet of so many workers.
func (s *spread) learn(lost, workers int) {
	switch {
	case lost > 0:
		s.window = min(max(2*max(s.window, 1), perWorker*workers), maxSpread)
	case s.window > 1:
		s.window = max(1, s.window-1-s.window/16)
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

// last is the rate as it was last observed.
func (r *rate) last() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.perSecond
}
