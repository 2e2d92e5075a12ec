package bench

import (
	"context"
	"fmt"
	"time"
)

// steady sends tasks as fast as they finish, for a set time, and compares the windows
// of that time. The last window is measured like the first: what the server does worse
// with time, such as walking deleted keys, shows there.
func steady(c *Config) []part {
	lasts := c.lasting(5*time.Minute, 20*time.Second)
	return []part{{
		name: "steady", workers: 1, here: true,
		raw:    yardstick{tasks: c.or(c.Tasks, 50_000, 10_000), writers: 1, batch: fullBatch, insert: true, update: true},
		orders: func(_ *run, s *spec) { s.Fetches = true },
		measure: func(ctx context.Context, r *run) error {
			var windows []span
			err := beside(ctx, func(ctx context.Context) (err error) {
				windows, err = r.windows(ctx, lasts, min(30*time.Second, lasts/4))
				return err
			}, r.feed)
			r.res.measured(int(r.crew.totals().Finished), r.cfg.Clock.Now().Sub(r.began))
			r.compareWindows(windows)
			return err
		},
	}}
}

// windows measures as many windows as fit the time, which each may exceed on a slow machine.
func (r *run) windows(ctx context.Context, lasts, window time.Duration) (out []span, err error) {
	show := r.progress("steady")
	for len(out) < int(lasts/window) {
		s, err := r.span(ctx, func(passed time.Duration, _ int64) (bool, error) {
			show(int(r.cfg.Clock.Now().Sub(r.began)/time.Second), int(lasts/time.Second))
			return passed >= window, nil
		})
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

// compareWindows adds the first and the last window as results of their own.
func (r *run) compareWindows(windows []span) {
	for i, w := range windows {
		cost := ""
		if each := w.cpuEach(); each != nil && r.db.Embedded() {
			cost = fmt.Sprintf(", %.0f µs of processor time a task", *each)
		}
		empty, full := w.fetchTimes()
		r.note("window %2d: %s/s%s, empty fetch %s, full fetch %s", i+1, shown(w.rate(), 0), cost, p50(empty), p50(full))
	}
	if len(windows) < 2 {
		return
	}
	first, last := windows[0], windows[len(windows)-1]
	r.also("steady/first", first, false)
	r.also("steady/last", last, false)
	if q := quotient(last.rate(), first.rate()); q != nil {
		r.note("last window / first: %.2f", *q)
	}
	if q := quotient(first.cpuEach(), last.cpuEach()); q != nil && r.db.Embedded() {
		r.note("last window / first by processor time: %.2f", *q)
	}
}

// fetchTimes are the milliseconds of the fetches that found nothing, and of those that found
// as many tasks as they asked for.
func (s *span) fetchTimes() (empty, full []float64) {
	for _, f := range s.fetches {
		switch {
		case f.Found == 0:
			empty = append(empty, f.MS)
		case f.Found >= f.Limit:
			full = append(full, f.MS)
		}
	}
	return empty, full
}

func p50(ms []float64) string {
	if p := percentiles(ms); p != nil {
		return fmt.Sprintf("%.1f ms (%d)", p.P50, len(ms))
	}
	return "-"
}
