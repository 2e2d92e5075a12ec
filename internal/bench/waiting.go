package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/producer"
)

// oneAndMany is a part with one worker, and the same with several.
func oneAndMany(p part, many int) []part {
	var parts []part
	for _, p.workers = range slices.Compact([]int{1, many}) {
		q := p
		q.name = fmt.Sprintf("%s/%d", p.name, p.workers)
		parts = append(parts, q)
	}
	return parts
}

// paced sends tasks at a fixed rate to workers that all wait for work.
func paced(c *Config) []part {
	every := time.Duration(float64(time.Second) / c.Rate)
	n := c.Tasks
	if n == 0 {
		n = max(1, int(c.lasting(30*time.Second, 5*time.Second)/every))
	}
	return oneAndMany(part{
		name: "paced", settle: 500 * time.Millisecond,
		load: func(ctx context.Context, r *run) (err error) {
			r.floor, err = r.startFloor(ctx)
			return err
		},
		raw:    yardstick{tasks: min(n, 500), writers: 1, batch: 1, insert: true, update: true},
		orders: func(_ *run, s *spec) { s.Latencies = true },
		measure: func(ctx context.Context, r *run) error {
			both, call := errgroup.WithContext(ctx)
			both.Go(func() error { return r.measureFloor(call, n, every) })
			both.Go(func() error { return r.sendPaced(call, n, every) })
			err := both.Wait()
			if err == nil {
				err = r.awaitEnds(ctx, "ending", n)
			}
			r.ended()
			var sent, floor *Latency
			r.crew.Look(func() { r.late, sent = r.crew.late, percentiles(r.crew.sent) })
			if r.floor != nil {
				r.floor.Look(func() { floor = percentiles(r.floor.sent) })
			}
			if sent != nil {
				r.note("from Send to start: p50 %.1f, p95 %.1f, p99 %.1f, max %.1f ms", sent.P50, sent.P95, sent.P99, sent.Max)
			}
			if sent != nil && floor != nil {
				r.note("the floor (the driver's insert, its change event in another process, a guarded update): p50 %.1f, p95 %.1f, p99 %.1f, max %.1f ms; from Send to start is %.2f of its p50 and %.2f of its p99",
					floor.P50, floor.P95, floor.P99, floor.Max, sent.P50/floor.P50, sent.P99/floor.P99)
			}
			return err
		},
	}, c.or(c.Processes, 8, 8))
}

// sendPaced sends each task at its time, however long the one before takes.
func (r *run) sendPaced(ctx context.Context, n int, every time.Duration) error {
	p, err := r.producer()
	if err != nil {
		return err
	}
	show := r.progress("sending at the pace")
	var sends errgroup.Group
	var cut error
	began := r.cfg.Clock.Monotonic()
	for i := range n {
		if cut = pause(ctx, began+time.Duration(i)*every-r.cfg.Clock.Monotonic()); cut != nil {
			break
		}
		sends.Go(func() error {
			a := r.args()
			a.Sent = r.cfg.Clock.Now().UnixNano()
			_, err := producer.Send(ctx, p, noop, a)
			return err
		})
		show(i+1, n)
	}
	return errors.Join(cut, sends.Wait())
}

// idle counts what workers send that have nothing to do, once they watch and what begins has
// ended. It has no yardstick: nothing is written for any task.
func idle(c *Config) []part {
	return oneAndMany(part{
		name: "idle", settle: 3500 * time.Millisecond,
		orders: func(_ *run, s *spec) { s.Latencies = true }, // to hear that it watches
		measure: func(ctx context.Context, r *run) error {
			before := r.crew.totals()
			took, err := r.rest(ctx, "resting", c.lasting(3*time.Minute, time.Minute))
			r.note("commands a minute: %s", perMinute(r.crew.totals().plus(before, -1).Commands, took))
			return err
		},
	}, c.or(c.Processes, 10, 10))
}

// perMinute lists commands by how often they come.
func perMinute(commands map[string]int64, took time.Duration) string {
	names := slices.SortedFunc(maps.Keys(commands), func(a, b string) int {
		if commands[a] != commands[b] {
			return int(commands[b] - commands[a])
		}
		return strings.Compare(a, b)
	})
	var all int64
	var list []string
	for _, name := range names {
		all += commands[name]
		list = append(list, fmt.Sprintf("%s %.1f", name, float64(commands[name])/took.Minutes()))
	}
	return fmt.Sprintf("%.1f (%s)", float64(all)/took.Minutes(), strings.Join(list, ", "))
}
