package flow

import (
	"context"
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
	return f.decider.Drain(ctx, "flows", now, f.Flush)
}
