package periodic

import (
	"context"
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
	return p.decider.Drain(ctx, "rules", now, nil)
}
