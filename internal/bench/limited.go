package bench

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/admin"
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

// limited compares how often tasks of a type with max_running start: alone, beside a backlog of
// another type, and behind one.
func limited(c *Config) []part {
	first := []producer.Option{producer.Priority(input.MaxPriority)}
	return []part{limitedBy(c, "limited/alone", 0, nil), limitedBy(c, "limited/beside", backlogOf(c), first), limitedBy(c, "limited/behind", backlogOf(c), nil)}
}

func limitedBy(c *Config, name string, backlog int, opts []producer.Option) part {
	n := c.or(0, 1000, 100)
	return part{
		name: name, workers: c.or(c.Processes, 4, 2),
		load: func(ctx context.Context, r *run) error {
			if err := r.backlog(ctx, backlog); err != nil {
				return err
			}
			p, err := r.producer()
			if err != nil {
				return err
			}
			_, err = admin.New(p).PutType(ctx, model.TaskType{Code: limitedType.Name(), MaxRunning: limitedRunning})
			if err == nil {
				_, err = producer.SendMany(ctx, p, limitedType, slices.Repeat([]producer.Item[model.None]{{Options: opts}}, n))
			}
			return err
		},
		orders:  func(_ *run, s *spec) { s.Limited = true },
		measure: func(ctx context.Context, r *run) error { return r.awaitStarts(ctx, "limited tasks", n) },
		after:   func(r *run) { r.crew.Look(func() { r.judgeStarts(r.crew.starts, r.crew.took) }) }, // commands of the backlog are not for these tasks
	}
}

// judgeStarts takes the rate between the first start and the last. It compares it with what handlers of
// limitedTime allow, and with what handlers allow that take as long as these took, in milliseconds.
func (r *run) judgeStarts(starts []start, took []float64) {
	if len(starts) < 2 {
		return
	}
	first, last := starts[0].At, starts[0].At
	for _, s := range starts {
		first, last = min(first, s.At), max(last, s.At)
	}
	r.res.measured(len(starts)-1, time.Duration(last-first))
	rate, possible := r.res.TasksPerSecond, limitedRunning/limitedTime.Seconds()
	if rate == nil {
		return
	}
	r.note("%.2f of the %.0f starts a second that max_running %d and handlers of %v allow", *rate/possible, possible, limitedRunning, limitedTime)
	if len(took) == 0 {
		return
	}
	mean := 0.0
	for _, t := range took {
		mean += t / float64(len(took))
	}
	possible = limitedRunning / mean * 1000
	r.note("its handlers took %.1f ms on average: %.2f of the %.0f starts a second that those allow", mean, *rate/possible, possible)
}
