package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/producer"
)

// backlogOf is how many tasks the scenarios that drain one have.
func backlogOf(c *Config) int { return c.or(c.Tasks, 100_000, 20_000) }

func preloaded(*Config) []part {
	return []part{{"preloaded", 1, func(ctx context.Context, r *run) error { return drain(ctx, r, false) }}}
}

func fleet(c *Config) []part {
	return []part{{"fleet", c.or(c.Processes, 4, 4), func(ctx context.Context, r *run) error { return drain(ctx, r, true) }}}
}

// delayed compares three drains: alone, beside tasks that are not due, and beside tasks
// that are due but for others.
func delayed(c *Config) []part {
	beside := func(what string, n int, opts ...producer.Option) func(context.Context, *run) error {
		return func(ctx context.Context, r *run) error {
			if err := r.backlog(ctx, n, opts...); err != nil {
				return err
			}
			if err := drain(ctx, r, false); err != nil {
				return err
			}
			if alone, ok := r.earlier.of("delayed/alone"); ok {
				if q := quotient(r.res.TasksPerSecond, alone.TasksPerSecond); q != nil {
					r.note("beside %d tasks %s: %.2f of the rate alone", n, what, *q)
				}
			}
			return nil
		}
	}
	return []part{
		{"delayed/alone", 1, func(ctx context.Context, r *run) error { return drain(ctx, r, false) }},
		{"delayed/later", 1, beside("that are not due", c.Later, producer.In(30*24*time.Hour))},
		{"delayed/others", 1, beside("for another worker", c.Others, producer.Workers("somebody-else"))},
	}
}

// backlog stores tasks.
func (r *run) backlog(ctx context.Context, n int, opts ...producer.Option) error {
	p, err := r.producer()
	if err != nil {
		return err
	}
	const chunk = 5000
	pad := strings.Repeat("x", r.cfg.ArgsBytes)
	for sent := 0; sent < n; {
		items := make([]producer.Item[args], min(chunk, n-sent))
		for i := range items {
			items[i] = producer.Item[args]{Args: args{Pad: pad}, Options: opts}
		}
		if _, err := producer.SendMany(ctx, p, noop, items); err != nil {
			return errors.Join(err, p.Close(ctx))
		}
		sent += len(items)
		r.progress("sending")(sent, n)
	}
	return p.Close(ctx)
}

// drain measures how fast workers empty a backlog, from the moment they are let loose to
// the last end.
func drain(ctx context.Context, r *run, processes bool) error {
	n := backlogOf(r.cfg)
	if err := r.measureRaw(ctx, yardstick{tasks: n, writers: r.res.Processes, batch: fullBatch, update: true}); err != nil {
		return err
	}
	if err := r.backlog(ctx, n); err != nil {
		return err
	}
	c, dismiss := r.crew()
	defer dismiss()
	for i := range r.res.Processes {
		hire := c.hireHere
		if processes {
			hire = c.hire
		}
		s := r.spec(i)
		if processes {
			s.Profile = r.cfg.WorkerProfile(r.name, s.WorkerID)
		}
		if _, err := hire(s); err != nil {
			return err
		}
	}
	defer r.cfg.OnMeasure(r.name)()
	cpu := cpuTime()
	began, err := c.begin(ctx)
	if err != nil {
		return err
	}
	show := r.progress("draining")
	err = c.await(ctx, func() bool {
		done := int(c.sum().Finished)
		show(done, n)
		return done >= n
	})
	t := c.totals()
	r.res.measured(int(t.Finished), time.Unix(0, t.LastFinish).Sub(began))
	r.res.counted(t)
	r.cpu = (&spent{tasks: int(t.Finished), cpu: cpuTime() - cpu + time.Duration(t.CPU)}).cpuEach()
	if err == nil && t.Finished > int64(n) {
		return fmt.Errorf("%d tasks had %d ends", n, t.Finished)
	}
	return err
}
