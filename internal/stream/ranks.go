package stream

import (
	"hash/fnv"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// The rules by which workers that learn of the same task at the same moment do not all
// write. They are pure; tests and the simulation in waking_sim_test.go call them.

const (
	// rankDelay is how long a watcher waits for each one that ranks before it: what a
	// claim takes, and a little more.
	rankDelay = 5 * time.Millisecond
	// missedEnough is after how many tasks in a row that nobody took in its turn a watcher
	// no longer waits for the others: they are gone, or have no room.
	missedEnough = 3
	// longestTurn bounds the delay of a start time that a large fleet knows of.
	longestTurn = 250 * time.Millisecond
)

// Ranks is what a watcher knows of those that see the same events: only watchers that
// exist now are waited for. It is safe for concurrent use.
type Ranks struct {
	doubt chan struct{} // somebody else claimed what was ours: who watches?

	mu       sync.Mutex
	watchers int // this one included; 0 and 1: nobody else
	rank     int // of this one among them, from 0
	missed   int // tasks in a row that were free although another one ranked before
}

// NewRanks returns the Ranks of a watcher that knows of no other.
func NewRanks() *Ranks { return &Ranks{doubt: make(chan struct{}, 1)} }

// Learn takes what the seats say. A change begins anew what was missed.
func (r *Ranks) Learn(w store.Watching) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers != w.Watchers || r.rank != w.Rank {
		r.watchers, r.rank, r.missed = w.Watchers, w.Rank, 0
	}
	select {
	case <-r.doubt:
	default:
	}
}

// Waited takes what became of tasks that others might have claimed first.
func (r *Ranks) Waited(taken, free int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case taken > 0:
		r.missed = 0
	default:
		r.missed += free
	}
}

// Lost notes that somebody else claimed what was this worker's: others do take part.
func (r *Ranks) Lost() {
	r.mu.Lock()
	r.missed = 0
	r.mu.Unlock()
	clock.Wake(r.doubt)
}

// Delay is how long to wait before a task is claimed: not at all for the watcher that
// ranks first for it, as every watcher does for its share of the tasks.
func (r *Ranks) Delay(id string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers <= 1 || r.missed >= missedEnough {
		return 0
	}
	return time.Duration((share(id)+r.rank)%r.watchers) * rankDelay
}

// share numbers tasks evenly and the same way in every process.
func share(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() >> 1)
}

// turn is how long after a start time that others know of, too, a worker looks for what
// is due: watchers by rank, the others at a time of their own, which salt chooses.
func (r *Ranks) turn(due time.Time, watching bool, workers, salt int) time.Duration {
	switch {
	case workers <= 1:
		return 0
	case watching:
		return r.Delay(due.Format(time.RFC3339Nano))
	default:
		spread := min(time.Duration(workers)*rankDelay, longestTurn)
		return rankDelay + time.Duration(salt)%spread
	}
}
