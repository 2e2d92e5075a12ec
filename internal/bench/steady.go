package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/producer"
)

// outstanding is how many tasks the steady scenario has under way: enough for full
// batches, and few enough that the queue stays short.
const outstanding = 4 * fullBatch

func steady(*Config) []part { return []part{{"steady", 1, keepGoing}} }

// keepGoing sends tasks as fast as they finish, for a set time, and compares the windows
// of that time. The last window is measured like the first: what the server does worse
// with time, such as walking deleted keys, shows there.
func keepGoing(ctx context.Context, r *run) error {
	lasts := r.cfg.lasting(5*time.Minute, 20*time.Second)
	window := min(30*time.Second, lasts/4)
	n := r.cfg.or(r.cfg.Tasks, 50_000, 10_000)
	if err := r.measureRaw(ctx, yardstick{tasks: n, writers: 1, batch: fullBatch, insert: true, update: true}); err != nil {
		return err
	}
	c, dismiss := r.crew()
	defer dismiss()
	defer r.cfg.OnMeasure(r.name)()
	cpu := cpuTime()
	s := r.spec(0)
	s.Fetches = true
	if _, err := c.hireHere(s); err != nil {
		return err
	}
	began, err := c.begin(ctx)
	if err != nil {
		return err
	}
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	fed := make(chan struct{})
	var ferr error
	go func() {
		defer close(fed)
		ferr = r.feed(feeding, c)
	}()
	windows, err := r.windows(ctx, c, began, lasts, window, fed)
	stop()
	<-fed
	if ferr != nil {
		err = errors.Join(err, fmt.Errorf("sending: %w", ferr))
	}
	t := c.totals()
	r.res.measured(int(t.Finished), r.cfg.Clock.Now().Sub(began))
	r.res.counted(t)
	r.cpu = (&spent{tasks: int(t.Finished), cpu: cpuTime() - cpu}).cpuEach()
	r.compareWindows(windows)
	return err
}

// feed keeps the number of tasks under way until it is stopped.
func (r *run) feed(ctx context.Context, c *crew) error {
	p, err := r.producer()
	if err != nil {
		return err
	}
	a := args{Pad: strings.Repeat("x", r.cfg.ArgsBytes)}
	for sent := int64(0); err == nil; {
		free := 0
		if err = c.await(ctx, func() bool {
			free = outstanding - int(sent-c.sum().Finished)
			return free >= fullBatch/2
		}); err != nil {
			break
		}
		items := make([]producer.Item[args], min(free, fullBatch))
		for i := range items {
			items[i].Args = a
		}
		_, err = producer.SendMany(ctx, p, noop, items)
		sent += int64(len(items))
	}
	if ctx.Err() != nil {
		err = nil // it was stopped; sends that it cut off do not matter
	}
	return errors.Join(err, p.Close(context.WithoutCancel(ctx)))
}

// span is what happened in one window.
type span struct {
	finished    int64
	took        time.Duration
	cpu         time.Duration // of this process, and so of the server where it is embedded
	empty, full []float64     // milliseconds of fetches
}

// windows measures as many windows as fit the time, which each may exceed on a slow machine.
// The end of feeding ends it, too.
func (r *run) windows(ctx context.Context, c *crew, began time.Time, lasts, window time.Duration, fed <-chan struct{}) ([]span, error) {
	var out []span
	show := r.progress("steady")
	from, last, cpu := began, int64(0), cpuTime()
	for len(out) < int(lasts/window) {
		for passed := r.cfg.Clock.Now().Sub(from); passed < window; passed = r.cfg.Clock.Now().Sub(from) {
			show(int(r.cfg.Clock.Now().Sub(began)/time.Second), int(lasts/time.Second))
			if err := pause(ctx, min(window-passed, time.Second)); err != nil {
				return out, err
			}
			select {
			case <-fed:
				return out, nil
			default:
			}
		}
		now := r.cfg.Clock.Now()
		c.mu.Lock()
		s := span{finished: c.sum().Finished - last, took: now.Sub(from)}
		for _, f := range c.fetches {
			switch {
			case f.Found == 0:
				s.empty = append(s.empty, f.MS)
			case f.Found >= f.Limit:
				s.full = append(s.full, f.MS)
			}
		}
		c.fetches = nil
		last += s.finished
		c.mu.Unlock()
		used := cpuTime()
		s.cpu, cpu = used-cpu, used
		out, from = append(out, s), now
	}
	return out, nil
}

// compareWindows adds the first and the last window as results of their own.
func (r *run) compareWindows(windows []span) {
	for i, w := range windows {
		cost := ""
		if each := w.cost(); each != nil && r.arena.server != nil {
			cost = fmt.Sprintf(", %.0f µs of processor time a task", *each)
		}
		r.note("window %2d: %s/s%s, empty fetch %s, full fetch %s", i+1, shown(perSecond(int(w.finished), w.took), 0), cost, p50(w.empty), p50(w.full))
	}
	if len(windows) < 2 {
		return
	}
	for i, name := range []string{"steady/first", "steady/last"} {
		w := windows[i*(len(windows)-1)]
		x := Result{Scenario: name, Engine: r.res.Engine, Processes: r.res.Processes, Concurrency: r.res.Concurrency, RawPerSecond: r.res.RawPerSecond}
		x.measured(int(w.finished), w.took)
		r.extra = append(r.extra, x)
	}
	first, last := windows[0], windows[len(windows)-1]
	if q := quotient(perSecond(int(last.finished), last.took), perSecond(int(first.finished), first.took)); q != nil {
		r.note("last window / first: %.2f", *q)
	}
	if q := quotient(first.cost(), last.cost()); q != nil && r.arena.server != nil {
		r.note("last window / first by processor time: %.2f", *q)
	}
}

// cost is the processor time of a task in microseconds; nil where it is not known.
func (s *span) cost() *float64 { return (&spent{tasks: int(s.finished), cpu: s.cpu}).cpuEach() }

func p50(ms []float64) string {
	if p := percentiles(ms); p != nil {
		return fmt.Sprintf("%.1f ms (%d)", p.P50, len(ms))
	}
	return "-"
}
