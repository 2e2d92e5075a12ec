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

func preloaded(c *Config) []part { return drains(c, "preloaded", 1) }

func fleet(c *Config) []part { return drains(c, "fleet", c.or(c.Processes, 4, 4)) }

// draining is how a backlog is drained.
type draining struct {
	rtt        time.Duration // what a proxy adds to each round trip; 0 = no proxy
	executable string        // of the workers; "" = this build's
}

// drains makes a part for each combination that was asked for. Parts with a name of their
// own compare with the one that they vary.
func drains(c *Config, name string, processes int) []part {
	var parts []part
	add := func(suffix, than, what string, d draining) {
		parts = append(parts, part{name + suffix, processes, func(ctx context.Context, r *run) error {
			err := drain(ctx, r, d)
			r.res.Notes = append(r.res.Notes, r.res.details()...)
			if err == nil {
				r.compareWith(name+than, what)
			}
			return err
		}})
	}
	add("", "", "", draining{})
	if c.Against != "" {
		add("/against", "", "the other build", draining{executable: c.Against})
	}
	if c.RTT > 0 {
		add("/rtt", "", fmt.Sprintf("with %v more a round trip", c.RTT), draining{rtt: c.RTT})
		if c.Against != "" {
			add("/rtt/against", "/rtt", "the other build", draining{rtt: c.RTT, executable: c.Against})
		}
	}
	return parts
}

// compareWith notes the rate as a share of an earlier part's. It leaves out the part itself.
func (r *run) compareWith(name, what string) {
	than, ok := r.earlier.of(name)
	if !ok || what == "" {
		return
	}
	if q := quotient(r.res.TasksPerSecond, than.TasksPerSecond); q != nil {
		r.note("%s: %.2f of the rate of %s", what, *q, name)
	}
}

// delayed compares three drains: alone, beside tasks that are not due, and beside tasks
// that are due but for others.
func delayed(c *Config) []part {
	beside := func(what string, n int, opts ...producer.Option) func(context.Context, *run) error {
		return func(ctx context.Context, r *run) error {
			if err := r.backlog(ctx, n, opts...); err != nil {
				return err
			}
			if err := drain(ctx, r, draining{}); err != nil {
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
		{"delayed/alone", 1, func(ctx context.Context, r *run) error { return drain(ctx, r, draining{}) }},
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
// the last end. Each worker has a process of its own where the bench can start one, so
// that the processor time of an embedded server can be told from theirs.
func drain(ctx context.Context, r *run, d draining) error {
	n := backlogOf(r.cfg)
	y := yardstick{tasks: n, writers: r.res.Processes, batch: fullBatch, update: true, each: r.cfg.Results}
	if err := r.measureRaw(ctx, y); err != nil {
		return err
	}
	if err := r.backlog(ctx, n); err != nil {
		return err
	}
	uri := r.arena.uri
	if d.rtt > 0 {
		far, err := distant(uri, d.rtt)
		if err != nil {
			return err
		}
		defer far.Close()
		uri = far.uri
	}
	c, dismiss := r.crew()
	defer dismiss()
	apart := r.res.Processes > 1 || r.cfg.Executable != "" || d.executable != ""
	for i := range r.res.Processes {
		s := r.spec(i)
		s.URI, s.Results = uri, r.cfg.Results
		hire := c.hireHere
		if apart {
			s.Profile = r.cfg.WorkerProfile(r.name, s.WorkerID)
			hire = func(s spec) (*member, error) { return c.hire(s, d.executable) }
		}
		if _, err := hire(s); err != nil {
			return err
		}
	}
	defer r.cfg.OnMeasure(r.name)()
	cpu, before := cpuTime(), r.arena.serverUsage(ctx, apart)
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
	if err == nil {
		r.usedBy(before, r.arena.serverUsage(ctx, apart))
	}
	if err == nil && t.Finished > int64(n) {
		return fmt.Errorf("%d tasks had %d ends", n, t.Finished)
	}
	return err
}
