package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
)

// streams measures how fast processes append to one stream and to many, and how long a step of a
// chain takes at its beginning and at its end, beside a plain send.
func streams(c *Config) []part {
	appends, many, steps := c.or(c.Tasks, 20_000, 5_000), min(c.or(c.Tasks, 1_000, 1_000), 1_000), c.or(c.Tasks, 20_000, 1_000)
	plain := new(float64) // median from Send to start
	return []part{
		appending("flow/append/one", appends, 1), appending("flow/append/many", appends, many),
		plainStarts(min(c.or(c.Tasks, 500, 200), 500), plain), chain(steps, plain),
	}
}

// appendOrder has a worker append nodes to streams in place of running tasks.
type appendOrder struct {
	Nodes   int `json:"nodes"`
	Streams int `json:"streams"`
}

// appenders is how many processes append.
const appenders = 4

// appending has processes append n nodes to streams in turn, one node at a time, by many callers.
func appending(name string, n, streams int) part {
	return part{
		name: name, workers: appenders, raw: yardstick{tasks: n, batch: 100, insert: true},
		orders: func(_ *run, s *spec) { s.Append = &appendOrder{Nodes: n / appenders, Streams: streams} },
		measure: func(ctx context.Context, r *run) error {
			err := r.awaitEnds(ctx, "appending", n/appenders*appenders)
			r.ended()
			return err
		},
	}
}

// append appends what was ordered.
func (w *worker) append(ctx context.Context, db *mongo.Database) error {
	flows, err := flow.New(flow.Config{Database: db})
	if err != nil {
		return err
	}
	callers, calls := errgroup.WithContext(ctx)
	callers.SetLimit(w.Concurrency)
	for i := range w.Append.Nodes {
		if calls.Err() != nil {
			break
		}
		callers.Go(func() error {
			_, err := flows.Append(calls, "bench", fmt.Sprint(i%w.Append.Streams), graph.NodeSpec{Type: noop.Name(), Args: args{Pad: "x"}, OnFailure: graph.Continue})
			if err == nil {
				w.counted.Add(1)
			}
			return err
		})
	}
	if err := callers.Wait(); err != nil {
		return fmt.Errorf("appending: %w", err)
	}
	return flows.Flush(ctx)
}

// plainStarts is the yardstick of steps: tasks that are sent one by one to a worker that watches.
func plainStarts(n int, plain *float64) part {
	return part{
		name: "flow/send", workers: 1, settle: 500 * time.Millisecond,
		orders: func(_ *run, s *spec) { s.Latencies = true },
		measure: func(ctx context.Context, r *run) error {
			err := r.sendPaced(ctx, n, 10*time.Millisecond)
			if err == nil {
				err = r.awaitEnds(ctx, "ending", n)
			}
			r.ended()
			r.crew.Look(func() { r.late = r.crew.sent })
			return err
		},
		after: func(r *run) {
			r.note("latency: from Send to the start of the handler")
			if r.res.Latency != nil {
				*plain = r.res.Latency.P50
			}
		},
	}
}

// chain runs a stream of which all nodes are there, by one process with a worker and an engine.
func chain(n int, plain *float64) part {
	return part{
		name: "flow/chain", workers: 1,
		orders: func(_ *run, s *spec) { s.Flows, s.Steps = true, true },
		load: func(ctx context.Context, r *run) error {
			flows, err := flow.New(flow.Config{Database: r.db.DB, Clock: r.cfg.Clock})
			if err != nil {
				return err
			}
			show := r.progress("appending")
			return inTurn(ctx, n, chunk, 1, func(ctx context.Context, from, to int) error {
				defer show(to, n)
				var nodes []graph.NodeSpec
				for range to - from {
					nodes = append(nodes, graph.NodeSpec{Type: noop.Name(), Args: r.args(), OnFailure: graph.Continue})
				}
				_, err := flows.Append(ctx, "bench", "chain", nodes...)
				return err
			})
		},
		measure: func(ctx context.Context, r *run) error {
			err := r.awaitEnds(ctx, "running", n)
			r.ended()
			r.crew.Look(func() { r.late = r.crew.steps })
			return err
		},
		after: func(r *run) {
			r.note("latency: from the return of a handler to the start of the next")
			if tenth := len(r.late) / 10; tenth > 0 {
				first, last := percentiles(r.late[:tenth]), percentiles(r.late[len(r.late)-tenth:])
				r.note("p50 of the first tenth %.2f ms, of the last %.2f ms", first.P50, last.P50)
			}
			if l := r.res.Latency; l != nil && *plain > 0 {
				r.note("p50 %.2f times that of a plain send", math.Round(100*l.P50 / *plain)/100)
			}
		},
	}
}
