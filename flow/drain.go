package flow

import (
	"context"
	"fmt"
	"time"
)

// Drain starts all nodes that can start now, and returns. It is for tests, which pass it to
// mstest.With or to consumer.Consumer.Drain:
//
//	mstest.Drain(t, c, mstest.SkipTime(), mstest.With(flows.Drain))
//
// now is the caller's notion of the database's time. Drain advances its own notion to now, never
// backwards. If worked is true, tasks may have become due, and next is the time to look for them.
// Otherwise next is the time when something in a flow is due (zero = never). Drain also does the work
// of other engines that are alive. It is refused while [Flows.Run] runs.
func (f *Flows) Drain(ctx context.Context, now time.Time) (next time.Time, worked bool, err error) {
	if err := f.ready(ctx); err != nil {
		return next, false, fmt.Errorf("draining the flows: %w", err)
	}
	if err := f.Flush(ctx); err != nil { // what was appended to streams
		return next, false, fmt.Errorf("draining the flows: %w", err)
	}
	f.store.Clock.Skip(max(now.Sub(f.store.Clock.Now()), 0))
	if err := f.types.Fresh(ctx, 0); err != nil {
		return next, false, fmt.Errorf("draining the flows: %w", err)
	}
	next, worked, err = f.decider.Drain(ctx)
	if err != nil {
		return next, worked, fmt.Errorf("draining the flows: %w", err)
	}
	if worked {
		next = f.store.Clock.Now()
	}
	return next, worked, nil
}
