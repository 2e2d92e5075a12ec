package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// enough calls in flight make it plain that a worker holds tasks.
	enough = 8
	// patience is for how long so many are waited for; after that one will do.
	patience = 3 * time.Second
	// actTime bounds each wait of an act. It is far more than any of them takes: a
	// demo that hangs says what it waited for.
	actTime = 45 * time.Second
)

// act is what is done to a worker, and what came of it.
type act struct {
	worker   string
	inFlight int           // calls of it that were open when it was done
	tasks    []string      // those
	took     time.Duration // until the last of those was taken over
}

// pick waits until a working worker has calls in flight that the target holds, so that
// it is certain to hold tasks, and returns it with those tasks.
func (d *demo) pick(ctx context.Context) (*worker, []string, error) {
	var w *worker
	err := d.until(ctx, "a worker with calls in flight", func() bool {
		most := 0
		for _, l := range d.fleet.live() {
			if n := d.target.inFlight(l.id); n > most {
				w, most = l, n
			}
		}
		return most > 0
	})
	if err != nil {
		return nil, nil, err
	}
	d.target.hold(w.id)
	var held []string
	began := d.clock.Monotonic()
	err = d.until(ctx, "calls of "+w.id+" to be in flight", func() bool {
		held = d.target.held(w.id)
		return len(held) >= enough || len(held) > 0 && d.clock.Monotonic()-began > patience
	})
	return w, d.taskIDs(held), err
}

// killOne kills a worker while it holds tasks and waits until all of those have been
// taken over.
func (d *demo) killOne(ctx context.Context) (act, error) {
	w, tasks, err := d.pick(ctx)
	if err != nil {
		return act{}, err
	}
	d.view.note("SIGKILL to %s, which has %d calls in flight", w.id, len(tasks))
	d.fleet.become(w, killed)
	if err := w.kill(); err != nil {
		return act{}, fmt.Errorf("killing %s: %w", w.id, err)
	}
	began := d.clock.Monotonic()
	err = d.until(ctx, "the tasks of "+w.id+" to be taken over", func() bool { return d.fleet.tookOver(w.id, tasks) })
	if err != nil {
		return act{}, err
	}
	took := d.clock.Monotonic() - began
	d.view.note("all of them were taken over by others within %.1f s (the lease is %v)", took.Seconds(), lease)
	return act{w.id, len(tasks), tasks, took}, nil
}

// freezeOne freezes a worker while it holds tasks, until they have been taken over, and
// then lets it go on: with answers in its hands that came too late.
func (d *demo) freezeOne(ctx context.Context) (act, error) {
	w, tasks, err := d.pick(ctx)
	if err != nil {
		return act{}, err
	}
	d.view.note("SIGSTOP to %s, which has %d calls in flight: it stands still and knows nothing of it", w.id, len(tasks))
	d.fleet.become(w, frozen)
	if err := w.freeze(); err != nil {
		return act{}, fmt.Errorf("freezing %s: %w", w.id, err)
	}
	began := d.clock.Monotonic()
	err = d.until(ctx, "the tasks of "+w.id+" to be taken over", func() bool { return d.fleet.tookOver(w.id, tasks) })
	took := d.clock.Monotonic() - began
	if err == nil {
		err = d.until(ctx, "the calls of those who took over", func() bool { return d.target.superseded(w.id) })
	}
	if err == nil {
		d.view.note("its leases lapsed, and all of them were taken over within %.1f s", took.Seconds())
		d.target.release(w.id)
		err = d.until(ctx, "the target to answer the frozen worker", func() bool { return d.target.inFlight(w.id) == 0 })
	}
	if err != nil {
		return act{}, errors.Join(err, w.thaw())
	}
	d.view.note("SIGCONT to %s: it wakes with %d answers that nobody waits for any more", w.id, len(tasks))
	d.fleet.become(w, working)
	if err := w.thaw(); err != nil {
		return act{}, fmt.Errorf("waking %s: %w", w.id, err)
	}
	err = d.until(ctx, "the late results of "+w.id+" to be refused", func() bool { return d.fleet.fencedOf(w) >= len(tasks) })
	if err != nil {
		return act{}, err
	}
	d.view.note("its late results were refused: the tasks belong to others now. It goes on with new ones")
	return act{w.id, len(tasks), tasks, took}, nil
}

// until waits for a condition on the target and the fleet; it is looked at whenever
// one of them changes.
func (d *demo) until(ctx context.Context, what string, met func() bool) error {
	limit := time.NewTimer(actTime)
	defer limit.Stop()
	for {
		target, fleet := d.target.moved(), d.fleet.moved()
		if met() {
			return nil
		}
		if err := d.fleet.broken(); err != nil {
			return err
		}
		select {
		case <-target:
		case <-fleet:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("waited %v for %s in vain", actTime, what)
		}
	}
}
