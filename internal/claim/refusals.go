package claim

import (
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// Refusals remembers tasks that are due but not for this worker now, such as one with
// which it had too many errors, so that they do not stand at the head of every fetch.
type Refusals struct {
	mu    sync.Mutex
	until map[string]time.Time
	back  bool                 // some are left out no longer
	retry map[string]time.Time // of those, the ones that are for this worker from then on
	held  map[string]bool      // of those, the ones that another client holds
}

const (
	// RefusedFor is how long a refused task is left out of queries.
	RefusedFor  = 10 * time.Second
	maxRefusals = 200
	// heldFor is how long a task that another client holds is left out.
	heldFor = time.Second
)

// Add notes a refusal. retry is when the task is for this worker: its own retry of a
// task that others may claim before; zero where that is not known.
func (r *Refusals) Add(id string, now, retry time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until, r.retry = map[string]time.Time{}, map[string]time.Time{}
	}
	if len(r.until) >= maxRefusals {
		return
	}
	r.until[id] = now.Add(RefusedFor)
	if retry.IsZero() || len(r.retry) >= maxRefusals {
		return
	}
	r.retry[id] = retry
	r.until[id] = clock.Sooner(r.until[id], retry)
}

// Lift forgets a refusal, because the task has been written since.
func (r *Refusals) Lift(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, id)
	delete(r.retry, id)
	delete(r.held, id)
}

// AddHeld notes a task that another client holds, such as an open transaction.
func (r *Refusals) AddHeld(id string, now time.Time) {
	r.Add(id, now, now.Add(heldFor))
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.until[id]; ok {
		if r.held == nil {
			r.held = map[string]bool{}
		}
		r.held[id] = true
	}
}

// Held is when the first of the held tasks is looked at again; zero = none is held, as far as is
// known.
func (r *Refusals) Held() (earliest time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.held {
		earliest = clock.Sooner(earliest, r.until[id])
	}
	return earliest
}

// Next is the earliest retry among the refused; zero when there is none. Nothing else
// tells of it: the task's due_at has come.
func (r *Refusals) Next() (earliest time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.retry {
		earliest = clock.Sooner(earliest, at)
	}
	return earliest
}

// Has reports whether the task is left out now.
func (r *Refusals) Has(id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !over(r.until[id], now)
}

// over reports whether a refusal has ended. One that ends later than any new refusal could was made before the database's
// clock was set back. A refusal by the time of a claim may be a little ahead of the estimate.
func over(until, now time.Time) bool {
	return !now.Before(until) || until.Sub(now) > 2*RefusedFor
}

// Full reports whether no further task can be remembered.
func (r *Refusals) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.until) >= maxRefusals
}

// CameBack reports whether some tasks that were left out of queries no longer are, since it was
// last asked.
func (r *Refusals) CameBack() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := r.back
	r.back = false
	return back
}

// IDs are those to leave out of a query.
func (r *Refusals) IDs(now time.Time) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, at := range r.retry {
		if !now.Before(at) {
			delete(r.retry, id)
		}
	}
	for id, until := range r.until {
		if over(until, now) {
			delete(r.until, id)
			delete(r.held, id)
			if until.After(now) { // the clock was set back, and the retry is of then, too
				delete(r.retry, id)
			}
			r.back = true
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
