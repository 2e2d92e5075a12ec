package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
)

// mostNodes is how many nodes a flow may have.
const mostNodes = 10_000

// flows measures what a node of a flow costs beside a plain task, in a graph as wide as it can be,
// and how soon a node starts after its parent has ended, in a graph as long as it can be.
func flows(c *Config) []part {
	n := min(c.or(c.Tasks, 1000, 300), mostNodes)
	plain := new(float64) // processor time of a plain task
	parts := []part{plainTasks(n, plain), wideFlow(n, plain), longFlow("flow/long", max(n/20, 2), runsFlows), longFlow("flow/apart", max(n/20, 2), nil)}
	return append(parts, streams(c)...)
}

// runsFlows has the worker's process run an engine, as `mscheduler work --flow` does.
func runsFlows(_ *run, s *spec) { s.Flows = true }

// plainTasks is the yardstick of flows: the same tasks, sent by themselves to a worker that waits.
func plainTasks(n int, plain *float64) part {
	return part{
		name: "flow/plain", workers: 1,
		measure: func(ctx context.Context, r *run) error {
			err := r.send(ctx, n)
			if err == nil {
				err = r.awaitEnds(ctx, "ending", n)
			}
			r.ended()
			return err
		},
		after: func(r *run) {
			if r.cpu != nil {
				*plain = *r.cpu
			}
		},
	}
}

// wideFlow is a flow of n nodes: all but the first and the last one run at the same time.
func wideFlow(n int, plain *float64) part {
	return part{
		name: "flow/wide", workers: 1, orders: runsFlows,
		measure: func(ctx context.Context, r *run) error {
			nodes := make([]graph.NodeSpec, n)
			for i := range nodes {
				nodes[i] = r.node(i)
				switch {
				case i == n-1:
					for k := 1; k < i; k++ {
						nodes[i].After = append(nodes[i].After, nodes[k].ID)
					}
				case i > 0:
					nodes[i].After = []string{nodes[0].ID}
				}
			}
			return r.flow(ctx, nodes, false)
		},
		after: func(r *run) {
			r.compareWith("flow/plain", "%.2f of the rate of plain tasks")
			if r.cpu != nil && *plain > 0 {
				r.note("processor time, server included: a node %.0f µs, a plain task %.0f µs, %.2f", *r.cpu, *plain, *r.cpu / *plain)
			}
		},
	}
}

// longFlow is a flow in which each node comes after the one before. The engine runs in the process of
// the worker, or in another one.
func longFlow(name string, n int, orders func(*run, *spec)) part {
	return part{
		name: name, workers: 1, orders: orders,
		measure: func(ctx context.Context, r *run) error {
			nodes := make([]graph.NodeSpec, n)
			for i := range nodes {
				if nodes[i] = r.node(i); i > 0 {
					nodes[i].After = []string{nodes[i-1].ID}
				}
			}
			err := r.flow(ctx, nodes, orders == nil)
			if err == nil {
				r.late, err = r.betweenNodes(ctx)
			}
			return err
		},
		after: func(r *run) { r.note("latency: from the end of a node to the claim of the next") },
	}
}

func (r *run) node(i int) graph.NodeSpec {
	return graph.NodeSpec{ID: fmt.Sprintf("n%05d", i), Type: noop.Name(), Args: r.args()}
}

// flow starts a flow and waits until it has ended; apart = with an engine in this process, which is
// not the worker's.
func (r *run) flow(ctx context.Context, nodes []graph.NodeSpec, apart bool) error {
	m := &meter{}
	client, err := m.connect(r.db.URI)
	if err != nil {
		return err
	}
	r.closes = append(r.closes, client.Disconnect)
	engine, err := flow.New(flow.Config{Database: client.Database(r.db.Name), Clock: r.cfg.Clock})
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	if apart {
		go func() { ended <- engine.Run(running) }()
	} else {
		ended <- nil
	}
	workers := r.counts
	r.counts = func() totals { return workers().plus(m.totals(), 1) }
	began := r.cfg.Clock.Now()
	f, err := engine.Start(ctx, graph.Spec{Key: "bench", Nodes: nodes})
	if err == nil {
		_, err = engine.Await(ctx, f.ID)
	}
	r.res.measured(len(nodes), r.cfg.Clock.Now().Sub(began))
	end()
	if stopped := <-ended; err == nil {
		err = stopped
	}
	return err
}

// betweenNodes are the milliseconds from each end of a task to the next claim.
func (r *run) betweenNodes(ctx context.Context) (late []float64, err error) {
	type ran struct {
		FinishedAt time.Time `bson:"finished_at"`
		States     []struct {
			ClaimedAt time.Time `bson:"claimed_at"`
		} `bson:"worker_states"`
	}
	var tasks []ran
	cur, err := r.db.DB.Collection("tasks").Find(ctx, bson.D{{Key: "type", Value: noop.Name()}})
	if err == nil {
		err = cur.All(ctx, &tasks)
	}
	if err != nil {
		return nil, fmt.Errorf("reading when the nodes ran: %w", err)
	}
	slices.SortFunc(tasks, func(a, b ran) int { return a.FinishedAt.Compare(b.FinishedAt) })
	for i := 1; i < len(tasks); i++ {
		if last := len(tasks[i].States) - 1; last >= 0 {
			late = append(late, millis(tasks[i].States[last].ClaimedAt.Sub(tasks[i-1].FinishedAt)))
		}
	}
	return late, nil
}
