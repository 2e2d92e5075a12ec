package mstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
)

// DrainOption changes how [Drain] works.
type DrainOption func(*drain)

type drain struct {
	skipTime bool
	within   time.Duration
	beside   []func(ctx context.Context, now time.Time) (next time.Time, worked bool, err error)
}

// SkipTime makes delays take no time: whenever nothing is due, the consumer's idea of
// the time jumps to the next start time or retry, until nothing is left to do in the next 250 years. The tasks
// then carry times that lie in the future.
func SkipTime() DrainOption { return func(d *drain) { d.skipTime = true } }

// Within is how long the drain may take by the machine's clock; then handlers are told
// to stop and the test fails. A handler that does not stop holds it up for the consumer's ShutdownTimeout and five
// seconds more. Defaults to a minute.
func Within(limit time.Duration) DrainOption { return func(d *drain) { d.within = limit } }

// With drains something else beside the tasks. With(flows.Drain) drains flows, so that their next
// nodes start, With(plans.Drain) plans, and With(rules.Drain) periodic rules. See
// [consumer.Consumer.Drain].
func With(beside func(ctx context.Context, now time.Time) (next time.Time, worked bool, err error)) DrainOption {
	return func(d *drain) { d.beside = append(d.beside, beside) }
}

const defaultWithin = time.Minute

// Drain runs the consumer until nothing is due and no handler runs. It may be called
// again, after more was sent, but not beside the consumer's Run. It ends the test when
// the database fails or the time is up; what handlers return is in the report, and
// decides nothing by itself.
func Drain(t testing.TB, c *consumer.Consumer, opts ...DrainOption) consumer.Drained {
	t.Helper()
	d := drain{within: defaultWithin}
	for i, o := range opts {
		if o == nil {
			t.Fatalf("draining the tasks: options[%d] is nil", i)
		}
		o(&d)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), d.within, fmt.Errorf("it did not finish within %v", d.within))
	defer cancel()
	report, err := c.Drain(ctx, d.skipTime, d.beside...)
	if err != nil {
		t.Fatalf("draining the tasks: %v (so far: %+v)", err, report)
	}
	return report
}
