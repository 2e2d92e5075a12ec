package fetchplan

import (
	"sync"
	"time"
)

// LargeBatch is the most quick tasks that a worker looks for if it has a distant server to
// itself.
const LargeBatch = 2 * MaxBatch

// tripShare is the wanted ratio of the time of a fetch to that of its round trips.
const tripShare = 4

// lead keeps the handlers of quick tasks busy while the next batch is found and claimed,
// however far away the server is. If they ran out of tasks during a fetch, the next fetch
// begins earlier. If round trips take much of its time, it also asks for more, unless
// other workers want the same tasks.
type lead struct {
	mu     sync.Mutex
	hungry bool          // the handlers ran out of tasks during the last fetch
	trip   time.Duration // of a query that finds next to nothing; 0 = not known
	most   int           // what a batch needs to outweigh its round trips
}

// tripped records the time of a query that finds next to nothing.
func (l *lead) tripped(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trip = took
}

// learn records what was held when a fetch began and when it was done, its duration and the
// number of tasks that it won.
func (l *lead) learn(before, after Held, took time.Duration, won int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hungry = after.Started-before.Started >= uint64(before.Buffered)
	l.most = MaxBatch
	if trips := 2 * l.trip; won > 0 && took > trips {
		l.most = min(max(MaxBatch, int(tripShare*float64(trips)*float64(won)/float64(took-trips))), LargeBatch)
	}
}

// ranOut reports whether the handlers ran out of tasks during the last fetch.
func (l *lead) ranOut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hungry
}

// enough is how many tasks may wait for a slot when a fetch begins.
func (l *lead) enough(freeSlots int, perSecond float64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wanted := batchWanted(freeSlots, perSecond); wanted > freeSlots && l.hungry {
		return wanted
	}
	return enough(freeSlots, perSecond)
}

// toFetch is how many tasks to look for now.
func (l *lead) toFetch(freeSlots, waiting int, perSecond float64, alone bool) int {
	if waiting > l.enough(freeSlots, perSecond) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := batchWanted(freeSlots, perSecond)
	switch {
	case wanted <= freeSlots || !l.hungry:
		return toFetch(freeSlots, waiting, perSecond)
	case alone:
		return max(wanted, min(l.most, int(perSecond*aheadTime.Seconds())))
	default:
		return wanted
	}
}
