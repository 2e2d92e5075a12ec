package bench

import (
	"context"
	"sync"

	"github.com/mscheduler/mscheduler/producer"
)

// sendBatch is how many tasks a SendMany of the bench has.
const sendBatch = 1000

// send measures producers; the yardstick of each is inserts of the same size.
func send(c *Config) []part {
	n := c.or(c.Tasks, 50_000, 10_000)
	few := min(n, max(n/10, 100)) // one at a time takes long
	return []part{
		sending("send/one", few, 1, 1, yardstick{tasks: few, batch: 1}),
		sending("send/concurrent", n, c.Concurrency, 1, yardstick{tasks: n, batch: c.Concurrency}),
		sending("send/batched", n, 1, sendBatch, yardstick{tasks: n, batch: sendBatch}),
	}
}

// sending stores n tasks by that many senders, each of which sends so many at once; 1 = by
// Send, more = by SendMany.
func sending(name string, n, senders, many int, raw yardstick) part {
	raw.insert = true
	return part{
		name: name, concurrency: senders, raw: raw,
		load: func(_ context.Context, r *run) error {
			r.counts = r.meter.totals
			_, err := r.producer()
			return err
		},
		measure: func(ctx context.Context, r *run) error {
			show := r.progress("sending")
			var mu sync.Mutex
			stored, began := 0, r.cfg.Clock.Monotonic()
			err := inTurn(ctx, n, many, senders, func(ctx context.Context, from, to int) (err error) {
				before := r.cfg.Clock.Monotonic()
				if many > 1 {
					err = r.send(ctx, to-from)
				} else {
					_, err = producer.Send(ctx, r.sender, noop, r.args())
				}
				mu.Lock()
				defer mu.Unlock()
				r.late = append(r.late, millis(r.cfg.Clock.Monotonic()-before))
				if err == nil {
					stored += to - from
					show(stored, n)
				}
				return err
			})
			r.res.measured(stored, r.cfg.Clock.Monotonic()-began)
			return err
		},
	}
}
