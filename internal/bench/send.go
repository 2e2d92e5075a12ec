package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mscheduler/mscheduler/producer"
)

// sendBatch is how many tasks a SendMany of the bench has.
const sendBatch = 1000

// send measures producers; the yardstick of each is inserts of the same size.
func send(c *Config) []part {
	n := c.or(c.Tasks, 50_000, 10_000)
	return []part{
		{"send/one", 1, func(ctx context.Context, r *run) error { // one at a time takes long
			return sending(ctx, r, sends{tasks: min(n, max(n/10, 100)), senders: 1, raw: 1})
		}},
		{"send/concurrent", 1, func(ctx context.Context, r *run) error {
			return sending(ctx, r, sends{tasks: n, senders: c.Concurrency, raw: c.Concurrency})
		}},
		{"send/batched", 1, func(ctx context.Context, r *run) error {
			return sending(ctx, r, sends{tasks: n, senders: 1, many: sendBatch, raw: sendBatch})
		}},
	}
}

// sends says how tasks are sent.
type sends struct {
	tasks, senders int
	many           int // tasks of a SendMany; 0 = Send
	raw            int // tasks of an insert of the yardstick
}

func sending(ctx context.Context, r *run, s sends) error {
	r.res.Concurrency = s.senders
	if err := r.measureRaw(ctx, yardstick{tasks: s.tasks, writers: 1, batch: s.raw, insert: true}); err != nil {
		return err
	}
	p, err := r.producer()
	if err != nil {
		return err
	}
	r.arena.meter.reset()
	var stored atomic.Int64
	var mu sync.Mutex
	var took []float64
	var failed error
	var next atomic.Int64
	show := r.progress("sending")
	one := func(n int) {
		before := r.cfg.Clock.Monotonic()
		err := sendSome(ctx, p, n, s.many > 0, r.cfg.ArgsBytes)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, millis(r.cfg.Clock.Monotonic()-before))
		failed = errors.Join(failed, err)
		if err == nil {
			show(int(stored.Add(int64(n))), s.tasks)
		}
	}
	defer r.cfg.OnMeasure(r.name)()
	began, cpu := r.cfg.Clock.Monotonic(), cpuTime()
	var wg sync.WaitGroup
	for range s.senders {
		wg.Go(func() {
			for ctx.Err() == nil {
				step := max(s.many, 1)
				from := int(next.Add(int64(step))) - step
				if from >= s.tasks {
					return
				}
				one(min(step, s.tasks-from))
			}
		})
	}
	wg.Wait()
	lasted := r.cfg.Clock.Monotonic() - began
	r.cpu = (&spent{tasks: int(stored.Load()), cpu: cpuTime() - cpu}).cpuEach()
	var t totals
	r.arena.meter.counts(&t)
	r.res.measured(int(stored.Load()), lasted)
	r.res.counted(t)
	r.res.Latency = percentiles(took)
	return errors.Join(failed, context.Cause(ctx), p.Close(ctx))
}

func sendSome(ctx context.Context, p *producer.Producer, n int, many bool, argsBytes int) error {
	a := args{Pad: strings.Repeat("x", argsBytes)}
	if !many {
		_, err := producer.Send(ctx, p, noop, a)
		return err
	}
	items := make([]producer.Item[args], n)
	for i := range items {
		items[i].Args = a
	}
	_, err := producer.SendMany(ctx, p, noop, items)
	return err
}
