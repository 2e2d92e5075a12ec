package fetchplan

import "time"

// The rules by which a worker decides how many tasks it looks for. They are pure.

const (
	// MaxBatch is the most tasks that a worker looks for, see also [LargeBatch].
	MaxBatch = 1000
	// aheadTime is how long a batch should last at the measured rate. A fetch has a
	// fixed cost, so quicker tasks get larger batches.
	aheadTime = 500 * time.Millisecond
)

// batchWanted returns how many claimed tasks a process wants ready: as many as it expects
// to start within [aheadTime], at least its free slots, at most [MaxBatch].
func batchWanted(freeSlots int, perSecond float64) int {
	return min(MaxBatch, max(freeSlots, int(perSecond*aheadTime.Seconds())))
}

// toFetch returns how many tasks to look for now: none while more than half of the wanted number
// waits, because many small fetches cost more than a few large ones. For the same reason quick
// tasks are fetched a whole batch at a time, while the rest keeps the handlers busy.
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

// enough returns how many tasks may wait for a slot when the next fetch begins.
func enough(freeSlots int, perSecond float64) int { return batchWanted(freeSlots, perSecond) / 2 }

// rate measures starts a second, smoothed over about a second, and how many there could be.
type rate struct {
	at        time.Duration
	started   uint64
	perSecond float64
	returned  int           // handlers of this backlog, the older ones counted less
	ran       time.Duration // all of these together
}

// observe takes the count of starts at a monotonic time.
func (r *rate) observe(now time.Duration, started uint64) float64 {
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

// ranFor records how long a handler ran.
func (r *rate) ranFor(d time.Duration) {
	r.returned, r.ran = r.returned+1, r.ran+max(d, 1)
	if r.returned >= 2*MaxBatch {
		r.returned, r.ran = r.returned/2, r.ran/2
	}
}

// possible is how many handlers could start a second in so many slots if there were always
// another task; 0 = not known, because too few have returned.
func (r *rate) possible(slots int) float64 {
	if r.returned < min(slots, MaxBatch) {
		return 0
	}
	return float64(slots) * float64(r.returned) / r.ran.Seconds()
}
