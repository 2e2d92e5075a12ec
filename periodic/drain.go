package periodic

import (
	"context"
	"fmt"
	"time"
)

// Drain decides all ticks that are due, and returns. It is for tests, which pass it to mstest.With or to
// consumer.Consumer.Drain:
//
//	mstest.Drain(t, c, mstest.SkipTime(), mstest.With(rules.Drain))
//
// now is the caller's notion of the database's time. Drain advances its own notion to now, never
// backwards. If worked is true, tasks may have become due, and next is the time to look for them.
// Otherwise next is the time of the next tick (zero = never). A rule without EndAt and MaxRuns always
// has a next tick, so a test that skips time gives it one of them. Drain also does the work of other
// engines that are alive. It is refused while [Periodic.Run] runs.
func (p *Periodic) Drain(ctx context.Context, now time.Time) (next time.Time, worked bool, err error) {
	if err := p.ready(ctx); err != nil {
		return next, false, fmt.Errorf("draining the rules: %w", err)
	}
	p.store.Clock.Skip(max(now.Sub(p.store.Clock.Now()), 0))
	if err := p.types.Fresh(ctx, 0); err != nil {
		return next, false, fmt.Errorf("draining the rules: %w", err)
	}
	if next, worked, err = p.decider.Drain(ctx); err != nil {
		return next, worked, fmt.Errorf("draining the rules: %w", err)
	}
	if worked {
		next = p.store.Clock.Now()
	}
	return next, worked, nil
}
