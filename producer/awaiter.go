package producer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// firstLook and lastLook bound the pause between two looks at an awaited task: short
	// for a task that ends at once, long for one that takes minutes.
	firstLook  = 50 * time.Millisecond
	lastLook   = time.Second
	lookFactor = 1.5
	// refusedFor is how long the server refuses all looks before the waits end: a privilege is missing, say.
	refusedFor = 3 * time.Second
	// maxLook bounds the ids of one query.
	maxLook = 5_000
)

// wait is one Await. The fields above done belong to the awaiter's goroutine until done
// is closed.
type wait struct {
	id         string
	generation int64
	fresh      bool // sent just now: it has hardly ended yet
	task       *model.Task
	err        error
	done       chan struct{}

	pause time.Duration // before the next look
	due   time.Duration // of the next look, by the monotonic clock
}

// awaiter looks at the tasks that a process waits for, all of them in one query. Each
// wait has a pause of its own that grows; those that are due within half a pause are
// looked at together. It has a goroutine only while somebody waits.
type awaiter struct {
	store *store.Store
	log   zerolog.Logger

	refused time.Duration // since when the server has refused all looks, by the monotonic clock; 0 = it has not

	mu      sync.Mutex
	waits   []*wait
	running bool
	closed  bool
	cancel  context.CancelFunc // of the query under way, if any
	changed chan struct{}      // wakes the goroutine: somebody joined or left, or close
}

func newAwaiter(s *store.Store, log zerolog.Logger) *awaiter {
	return &awaiter{store: s, log: log, changed: make(chan struct{}, 1)}
}

func (a *awaiter) join(w *wait) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	w.pause = firstLook
	w.due = a.store.Local().Monotonic()
	if w.fresh {
		w.due += w.pause
	}
	a.waits = append(a.waits, w)
	if !a.running {
		a.running = true
		go a.run()
	}
	clock.Wake(a.changed)
	return nil
}

func (a *awaiter) leave(w *wait) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = slices.DeleteFunc(a.waits, func(o *wait) bool { return o == w })
	a.cutShort()
	clock.Wake(a.changed)
}

func (a *awaiter) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.cutShort()
	clock.Wake(a.changed)
}

// run ends when nobody waits any more.
func (a *awaiter) run() {
	for {
		due, pause := a.next()
		switch {
		case due == nil:
			return
		case len(due) == 0:
			clock.PauseOr(context.Background(), pause, a.changed)
		default:
			a.lookAt(due)
		}
	}
}

// next takes what is due for a look, or says how long to sleep. nil ends the goroutine.
func (a *awaiter) next() (due []*wait, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		for _, w := range a.waits {
			w.err = ErrClosed
			close(w.done)
		}
		a.waits = nil
	}
	if len(a.waits) == 0 {
		a.running = false
		return nil, 0
	}
	now := a.store.Local().Monotonic()
	due, pause = []*wait{}, lastLook
	for _, w := range a.waits {
		pause = min(pause, w.due-now)
	}
	if pause > 0 {
		return due, pause
	}
	for _, w := range a.waits {
		if w.due <= now+w.pause/2 && len(due) < maxLook {
			due = append(due, w)
		}
	}
	return due, 0
}

// lookAt looks at the tasks and lets those go on whose waiting is over.
func (a *awaiter) lookAt(due []*wait) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.mu.Lock()
	a.cancel = cancel
	a.cutShort()
	a.mu.Unlock()

	over, err := a.look(ctx, due)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel = nil
	now := a.store.Local().Monotonic()
	switch {
	case err == nil || !store.Final(err):
		a.refused = 0
	case a.refused == 0:
		a.refused = now
	}
	if store.Classify(err) == store.Fatal || a.refused > 0 && now-a.refused >= refusedFor {
		over = due
		for _, w := range due {
			if w.task == nil && w.err == nil {
				w.err = err
			}
		}
	} else if err != nil && ctx.Err() == nil {
		a.log.Debug().Err(err).Int("tasks", len(due)).Msg("could not read awaited tasks; retrying")
	}
	for _, w := range due {
		w.pause = min(time.Duration(float64(w.pause)*lookFactor), lastLook)
		w.due = now + w.pause
	}
	gone := make(map[*wait]struct{}, len(over))
	for _, w := range over {
		gone[w] = struct{}{}
		close(w.done)
	}
	a.waits = slices.DeleteFunc(a.waits, func(w *wait) bool { _, is := gone[w]; return is })
}

// cutShort ends a query whose answer nobody waits for any more.
func (a *awaiter) cutShort() {
	if a.cancel != nil && (a.closed || len(a.waits) == 0) {
		a.cancel()
	}
}
