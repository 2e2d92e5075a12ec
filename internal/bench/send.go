package bench

import (
	"context"
	"errors"
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
			s := senderState{run: r, n: n, many: many, show: r.progress("sending")}
			began := r.cfg.Clock.Monotonic()
			var wg sync.WaitGroup
			for range senders {
				wg.Go(func() { s.sendAll(ctx) })
			}
			wg.Wait()
			r.res.measured(s.stored, r.cfg.Clock.Monotonic()-began)
			return errors.Join(s.failed, context.Cause(ctx))
		},
	}
}

// senderState is what the senders of a part share.
type senderState struct {
	*run
	n, many int
	show    func(done, total int)

	mu           sync.Mutex
	next, stored int
	failed       error
}

// sendAll sends until no task is left.
func (s *senderState) sendAll(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		some := min(s.many, s.n-s.next)
		s.next += some
		s.mu.Unlock()
		if some == 0 {
			return
		}
		before := s.cfg.Clock.Monotonic()
		var err error
		if s.many > 1 {
			err = s.send(ctx, some)
		} else {
			_, err = producer.Send(ctx, s.sender, noop, s.args())
		}
		s.mu.Lock()
		s.late = append(s.late, millis(s.cfg.Clock.Monotonic()-before))
		s.failed = errors.Join(s.failed, err)
		if err == nil {
			s.stored += some
			s.show(s.stored, s.n)
		}
		s.mu.Unlock()
	}
}
