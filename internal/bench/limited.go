package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// limitedType has max_running. Its handlers take limitedTime.
var limitedType = model.NewType[model.None, model.None]("bench.limited")

const (
	limitedRunning = 5
	limitedTime    = 20 * time.Millisecond
)

func work(ctx context.Context, _ *consumer.Task[model.None]) (model.None, error) {
	clock.Pause(ctx, limitedTime)
	return model.None{}, context.Cause(ctx)
}

// limited compares how often tasks of a type with max_running start: alone, beside a backlog of
// another type, and behind one.
func limited(c *Config) []part {
	n := c.or(c.Processes, 4, 2)
	var parts []part
	for _, p := range []struct {
		name    string
		backlog bool
		opts    []producer.Option
	}{
		{name: "limited/alone"},
		{name: "limited/beside", backlog: true, opts: []producer.Option{producer.Priority(input.MaxPriority)}},
		{name: "limited/behind", backlog: true},
	} {
		parts = append(parts, part{p.name, n, func(ctx context.Context, r *run) error {
			if p.backlog {
				if err := r.backlog(ctx, backlogOf(r.cfg)); err != nil {
					return err
				}
			}
			return r.startLimited(ctx, p.opts)
		}})
	}
	return parts
}

func (r *run) startLimited(ctx context.Context, opts []producer.Option) error {
	n := r.cfg.or(0, 1000, 100)
	if err := r.sendLimited(ctx, n, opts); err != nil {
		return err
	}
	c, dismiss := r.crew()
	defer dismiss()
	for i := range r.res.Processes {
		s := r.spec(i)
		s.Limited = true
		if _, err := c.hire(s, ""); err != nil {
			return err
		}
	}
	defer r.cfg.OnMeasure(r.name)()
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	show := r.progress("limited tasks")
	err := c.await(ctx, func() bool {
		show(len(c.starts), n)
		return len(c.starts) >= n
	})
	r.res.counted(c.totals())
	c.mu.Lock()
	defer c.mu.Unlock()
	r.judgeStarts(c.starts)
	return err
}

func (r *run) sendLimited(ctx context.Context, n int, opts []producer.Option) error {
	p, err := r.producer()
	if err != nil {
		return err
	}
	_, err = p.PutType(ctx, model.TaskType{Code: limitedType.Name(), MaxRunning: limitedRunning})
	if err == nil {
		_, err = producer.SendMany(ctx, p, limitedType, slices.Repeat([]producer.Item[model.None]{{Options: opts}}, n))
	}
	return errors.Join(err, p.Close(ctx))
}

// judgeStarts takes the rate between the first start and the last.
func (r *run) judgeStarts(starts []start) {
	if len(starts) < 2 {
		return
	}
	first, last := starts[0].At, starts[0].At
	for _, s := range starts {
		first, last = min(first, s.At), max(last, s.At)
	}
	r.res.measured(len(starts)-1, time.Duration(last-first))
	possible := float64(limitedRunning) / limitedTime.Seconds()
	if rate := r.res.TasksPerSecond; rate != nil {
		r.note("%.2f of the %.0f starts a second that max_running %d and handlers of %v allow", *rate/possible, possible, limitedRunning, limitedTime)
	}
}
