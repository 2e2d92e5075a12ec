package decision

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Drain decides and carries out all there is, and returns. It is for tests: whatever others do, it takes every document as
// its own, and does not wait for the plans of engines that may be alive. It advances the clock to now, never backwards. If
// worked is true, it did something, and next is when to look for the tasks. Otherwise next is when something is due (zero =
// never). It is refused while an engine runs, and remembers nothing of earlier drains. many is what an error calls the
// documents. first is called when the schema and the clock are known; nil = nothing.
func (d *Decider[D]) Drain(ctx context.Context, many string, now time.Time, first func(context.Context) error) (next time.Time, worked bool, err error) {
	if next, worked, err = d.drainAt(ctx, now, first); err != nil {
		return next, worked, fmt.Errorf("draining the %s: %w", many, err)
	}
	if worked {
		next = d.Store.Clock.Now()
	}
	return next, worked, nil
}

func (d *Decider[D]) drainAt(ctx context.Context, now time.Time, first func(context.Context) error) (next time.Time, worked bool, err error) {
	if err := d.Store.Prepare(ctx); err != nil {
		return next, false, err
	}
	if first != nil {
		if err := first(ctx); err != nil {
			return next, false, err
		}
	}
	d.Store.Clock.Skip(max(now.Sub(d.Store.Clock.Now()), 0))
	if err := d.Types.Fresh(ctx, 0); err != nil {
		return next, false, err
	}
	d.drains.Lock()
	defer d.drains.Unlock()
	leave, err := d.enter()
	if err != nil {
		return next, false, err
	}
	defer leave()
	return New(d.Config).drain(ctx)
}

func (d *Decider[D]) drain(ctx context.Context) (next time.Time, worked bool, err error) {
	defer func() { d.flush(ctx, 0) }()
	var alone rank
	for skip := 0; ; {
		alone.begin()
		began, now := clock.Read(d.Store.Local()), d.Store.Clock.Now()
		carried, err := d.carryOutAll(ctx, now)
		if err != nil {
			return next, worked, err
		}
		if err := d.Store.Ask(ctx, "looking for what is due", d.questions(now, time.Time{}, skip)...); err != nil {
			return next, worked, err
		}
		full := d.dueFull()
		soon, stays, did, err := d.round(ctx, began, now, &alone)
		if err != nil {
			return next, worked, err
		}
		d.flush(ctx, 0)
		worked = worked || did || carried
		next = time.Time{}
		if soon > 0 && soon < longest {
			next = now.Add(soon)
		} else if soon == longest { // a round looks no further
			next = d.found.next
		}
		switch {
		case did || carried:
			skip = 0
		case full && stays > 0:
			skip += stays
		default:
			return next, worked, nil
		}
	}
}

// carryOutAll carries out every plan that is stored. did says whether there was one that it could.
func (d *Decider[D]) carryOutAll(ctx context.Context, now time.Time) (did bool, err error) {
	for skip := 0; ; {
		docs, unread, err := d.Documents.Planned(ctx, now.Add(time.Millisecond), skip, perSweep)
		if err != nil || len(docs)+len(unread) == 0 {
			return did, err
		}
		stuck, err := d.CarryOut(ctx, docs)
		if stuck == 0 && err != nil || store.Outage(err) {
			return did, err
		}
		if err != nil {
			d.later(err)
		}
		did = did || stuck < len(docs)
		skip += stuck + len(unread)
	}
}
