package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// enough calls in flight make it plain that a worker holds tasks.
	enough = 8
	// patience is for how long so many are waited for; after that one will do.
	patience = 3 * time.Second
)

// tries is how many workers are frozen at most, until one was that held its tasks.
const tries = 3

// act is what is done to a worker, and what came of it.
type act struct {
	worker string
	took   time.Duration // until the last task that it held was another's
}

// pick waits until a working worker has calls in flight that the target holds, so that
// it holds tasks, and returns it with those.
func (d *demo) pick(ctx context.Context) (w *worker, held []holding, err error) {
	err = d.until(ctx, "a worker with calls in flight", func() bool {
		most := 0
		for _, l := range d.workers {
			if n := len(d.target.flying[l.id]); n > most && l.now() == working {
				w, most = l, n
			}
		}
		return most > 0
	})
	if err != nil {
		return nil, nil, err
	}
	d.Set(func() { d.target.holds[w.id] = make(chan struct{}) })
	began := d.Clock.Monotonic()
	// Nothing may change any more, because all that is left is held: look when patience is over.
	defer time.AfterFunc(patience+time.Millisecond, func() { d.Set(func() {}) }).Stop()
	err = d.until(ctx, "calls of "+w.id+" to be in flight", func() bool {
		held = d.target.held(w.id)
		return len(held) >= enough || len(held) > 0 && d.Clock.Monotonic()-began > patience
	})
	return w, held, err
}

// moveOn waits until others have all that the worker held. On a machine that is busy with
// other things a worker may have stalled just before, and then it gave back itself what it
// held: that has moved on, too, though nothing of it lapsed.
func (d *demo) moveOn(ctx context.Context, w *worker, held []holding) (took time.Duration, err error) {
	began := d.Clock.Monotonic()
	err = d.untilNone(ctx, "the tasks of "+w.id+" to be taken over", held, func(h holding) bool { return d.holds(w, h) })
	return d.Clock.Monotonic() - began, err
}

// killOne kills a worker while it holds tasks and waits until all of those have been
// taken over.
func (d *demo) killOne(ctx context.Context) (act, error) {
	w, held, err := d.pick(ctx)
	if err != nil {
		return act{}, err
	}
	d.view.note("SIGKILL to %s, which has %d calls in flight", w.id, len(held))
	d.Set(func() { w.state = killed })
	w.Kill()
	took, err := d.moveOn(ctx, w, held)
	if err != nil {
		return act{}, err
	}
	d.view.note("other workers took over all of its tasks within %.1f s (the lease is %v)", took.Seconds(), lease)
	return act{w.id, took}, nil
}

// freezeOne freezes a worker while it holds tasks, until they have been taken over, and
// then lets it go on: with answers in its hands that came too late.
func (d *demo) freezeOne(ctx context.Context) (act, error) {
	for try := 1; ; try++ {
		w, held, err := d.pick(ctx)
		if err != nil {
			return act{}, err
		}
		took, err := d.freeze(ctx, w, held)
		if err != nil {
			return act{}, err
		}
		refused := 0
		d.Look(func() { refused = w.fenced })
		if refused > 0 {
			d.view.note("its late results were refused, because other workers hold the tasks now. It continues with new tasks")
			return act{w.id, took}, nil
		}
		d.view.note("it had stalled before the freeze and had released all of its tasks")
		if try == tries {
			return act{w.id, took}, nil
		}
	}
}

func (d *demo) freeze(ctx context.Context, w *worker, held []holding) (took time.Duration, err error) {
	d.view.note("SIGSTOP to %s, which has %d calls in flight: it is frozen and cannot notice it", w.id, len(held))
	d.Set(func() { w.state = frozen })
	if err := w.Freeze(); err != nil {
		return 0, fmt.Errorf("freezing %s: %w", w.id, err)
	}
	took, err = d.moveOn(ctx, w, held)
	if err == nil {
		err = d.until(ctx, "the calls of those who took over", func() bool { return d.target.superseded(w.id) })
	}
	if err == nil {
		d.view.note("its leases lapsed, and other workers took over all of its tasks within %.1f s", took.Seconds())
		d.Set(func() { d.target.release(w.id) })
		err = d.until(ctx, "the target to answer the frozen worker", func() bool { return len(d.target.flying[w.id]) == 0 })
	}
	if err != nil {
		return 0, errors.Join(err, w.Thaw())
	}
	d.view.note("SIGCONT to %s: it wakes up with %d late results", w.id, len(held))
	d.Set(func() { w.state = working })
	if err := w.Thaw(); err != nil {
		return 0, fmt.Errorf("waking %s: %w", w.id, err)
	}
	return took, d.untilNone(ctx, "the late results of "+w.id+" to be refused", held, func(h holding) bool { return !w.reports[h.exec] })
}

// untilNone waits until nothing of all is left, and names what is when it waited in vain.
func (d *demo) untilNone(ctx context.Context, what string, all []holding, left func(holding) bool) error {
	var some []holding
	err := d.until(ctx, what, func() bool {
		some = slices.DeleteFunc(slices.Clone(all), func(h holding) bool { return !left(h) })
		return len(some) == 0
	})
	if err != nil && len(some) > 0 {
		err = fmt.Errorf("%w: %d are left, among them %s", err, len(some), some[0])
	}
	return err
}
