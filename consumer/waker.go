package consumer

import (
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// waker tells the fetch loop that there may be work: now, or at a time of the store's
// clock that somebody knows of.
type waker struct {
	look  chan struct{} // there may be work; at most one token: woken twice is woken once
	rearm chan struct{} // due became earlier: sleep until then

	mu  sync.Mutex
	due time.Time // the earliest known; zero = none
}

func newWaker() waker {
	return waker{look: make(chan struct{}, 1), rearm: make(chan struct{}, 1)}
}

// now wakes the fetch loop.
func (w *waker) now() { clock.Wake(w.look) }

// at notes a future due_at, such as the retry of what this worker ended with an error.
func (w *waker) at(due time.Time) {
	w.mu.Lock()
	earlier := w.due.IsZero() || due.Before(w.due)
	if earlier {
		w.due = due
	}
	w.mu.Unlock()
	if earlier {
		clock.Wake(w.rearm)
	}
}

// next is the earliest noted time; a time that has come is taken out.
func (w *waker) next(now time.Time) (due time.Time, come bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due = w.due
	if due.IsZero() || due.After(now) {
		return due, false
	}
	w.due = time.Time{}
	return due, true
}
