package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/store"
)

// floor measures what no scheduler on this server can be quicker than, by the driver alone and at the same pace: a
// document as the product's is inserted, its change event arrives, and the update that claims it is
// answered. The latency is from before the insert to that answer.
func (r *run) floor(ctx context.Context, n int, every time.Duration) (*Latency, error) {
	st, err := store.Open(store.Config{Database: r.db.DB, Prefix: rawPrefix})
	if err == nil {
		err = st.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("setting the floor up: %w", err)
	}
	w, err := newRawWriter(r.db.DB, false, time.UnixMilli(st.Local().Now().UnixMilli()))
	if err != nil {
		return nil, err
	}
	tasks, err := w.tasks(n, r.cfg.ArgsBytes)
	if err != nil {
		return nil, err
	}
	late, err := r.startRaw(ctx, w, tasks, every)
	if err != nil {
		return nil, fmt.Errorf("measuring the floor: %w", err)
	}
	return percentiles(late), dropRaw(ctx, r.db.DB)
}

// startRaw inserts tasks at the pace, and claims each when its event arrives. late are the latencies in
// milliseconds.
func (r *run) startRaw(ctx context.Context, w *rawWriter, tasks []rawTask, every time.Duration) (late []float64, err error) {
	clk := r.cfg.Clock
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(len(tasks))*every+time.Minute, errors.New("the change events of the floor did not arrive within a minute"))
	defer cancel()
	events, err := r.db.DB.Collection(rawPrefix+"tasks").Watch(ctx, mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "insert"}}}}},
		options.ChangeStream().SetMaxAwaitTime(store.StreamAwait).SetBatchSize(0))
	if err != nil {
		return nil, err
	}
	defer events.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was read
	places := make(map[string]int, len(tasks))
	for i, t := range tasks {
		places[t.id] = i
	}
	sent := make([]atomic.Int64, len(tasks))
	late = make([]float64, len(tasks))
	show := r.progress("floor")
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		for seen := range tasks {
			if !events.Next(ctx) {
				return cmp.Or(context.Cause(ctx), events.Err())
			}
			i, known := places[events.Current.Lookup("documentKey", "_id").StringValue()]
			if !known {
				return fmt.Errorf("an event of an unknown document: %s", events.Current)
			}
			all.Go(func() error {
				err := w.update(ctx, tasks[i:i+1], 1, w.claim)
				late[i] = millis(clk.Monotonic() - time.Duration(sent[i].Load()))
				return err
			})
			show(seen+1, len(tasks))
		}
		return nil
	})
	all.Go(func() error {
		began := clk.Monotonic()
		for i := range tasks {
			if err := pause(ctx, began+time.Duration(i)*every-clk.Monotonic()); err != nil {
				return err
			}
			all.Go(func() error {
				sent[i].Store(int64(clk.Monotonic()))
				return w.insert(ctx, tasks[i:i+1])
			})
		}
		return nil
	})
	return late, all.Wait()
}
