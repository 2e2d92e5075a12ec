package fetchplan

import "time"

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
	hungry bool          // the handlers ran out of tasks during the last fetch
	trip   time.Duration // of a query that finds next to nothing; 0 = not known
	most   int           // what a batch needs to outweigh its round trips
}

// learn records what was held when a fetch began and when it was done, its duration and the
// number of tasks that it won.
func (l *lead) learn(before, after Held, took time.Duration, won int) {
	l.hungry = after.Started-before.Started >= uint64(before.Buffered)
	l.most = MaxBatch
	if trips := 2 * l.trip; won > 0 && took > trips {
		l.most = min(max(MaxBatch, int(tripShare*float64(trips)*float64(won)/float64(took-trips))), LargeBatch)
	}
}

// enough is how many tasks may wait for a slot when a fetch begins.
func (l *lead) enough(freeSlots int, perSecond float64) int {
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
