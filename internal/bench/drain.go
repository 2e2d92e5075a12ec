package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/producer"
)

// backlogOf is how many tasks the scenarios that drain one have.
func backlogOf(c *Config) int { return c.or(c.Tasks, 100_000, 20_000) }

func drainByOne(c *Config) []part { return drains(c, "preloaded", 1) }

func drainByMany(c *Config) []part { return drains(c, "fleet", c.or(c.Processes, 4, 4)) }

// drains makes a part for each combination of round trip and build that was asked for. Each
// compares with the one that it varies.
func drains(c *Config, name string, workers int) []part {
	far := fmt.Sprintf("with %v more a round trip", c.RTT)
	var parts []part
	for _, v := range []struct {
		suffix, than, what string
		rtt                time.Duration
		build              string
		wanted             bool
	}{
		{suffix: "", wanted: true},
		{"/against", "", "the other build", 0, c.Against, c.Against != ""},
		{"/rtt", "", far, c.RTT, "", c.RTT > 0},
		{"/rtt/against", "/rtt", "the other build", c.RTT, c.Against, c.RTT > 0 && c.Against != ""},
	} {
		if !v.wanted {
			continue
		}
		p := drain(c, name+v.suffix, workers, v.build)
		p.rtt = v.rtt
		p.after = func(r *run) {
			r.res.Notes = append(r.res.Notes, r.res.details()...)
			if v.what != "" {
				r.compareWith(name+v.than, v.what+": %.2f of the rate of "+name+v.than)
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// delayed compares three drains: alone, beside tasks that are not due, and beside tasks
// that are due but for others.
func delayed(c *Config) []part {
	parts := []part{drain(c, "delayed/alone", 1, "")}
	for _, v := range []struct {
		name, what string
		n          int
		opt        producer.Option
	}{
		{"delayed/later", "that are not due", c.Later, producer.In(30 * 24 * time.Hour)},
		{"delayed/others", "for another worker", c.Others, producer.Workers("somebody-else")},
	} {
		p := drain(c, v.name, 1, "")
		own := p.load
		p.load = func(ctx context.Context, r *run) error {
			if err := r.backlog(ctx, v.n, v.opt); err != nil {
				return err
			}
			return own(ctx, r)
		}
		p.after = func(r *run) {
			r.compareWith("delayed/alone", fmt.Sprintf("beside %d tasks %s: ", v.n, v.what)+"%.2f of the rate alone")
		}
		parts = append(parts, p)
	}
	return parts
}

// compareWith notes the rate as a share of an earlier part's, if both are known.
func (r *run) compareWith(name, format string) {
	if than, ok := r.earlier.of(name); ok && !r.res.Partial {
		if q := quotient(r.res.TasksPerSecond, than.TasksPerSecond); q != nil {
			r.note(format, *q)
		}
	}
}

// drain measures how fast workers empty a backlog, from the moment they are let loose to
// the last end. Each worker has a process of its own where the bench can start one, so
// that the processor time of an embedded server can be told from theirs.
func drain(c *Config, name string, workers int, build string) part {
	n := backlogOf(c)
	return part{
		name: name, workers: workers, build: build, here: workers == 1 && c.Executable == "" && build == "", usage: true,
		raw:    yardstick{tasks: n, writers: workers, batch: fullBatch, update: true, each: c.Results},
		load:   func(ctx context.Context, r *run) error { return r.backlog(ctx, n) },
		orders: func(_ *run, s *spec) { s.Results = c.Results },
		measure: func(ctx context.Context, r *run) error {
			err := r.awaitEnds(ctx, "draining", n)
			r.ended()
			if err == nil && r.res.Tasks > n {
				return fmt.Errorf("%d tasks had %d ends", n, r.res.Tasks)
			}
			return err
		},
	}
}
