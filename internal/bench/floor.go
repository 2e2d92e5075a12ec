package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/store"
)

// floor is the yardstick of latency, by the driver alone. The bench inserts a document as the product's is,
// its change event arrives in another process, and the update that claims it is answered there. The
// latency is from before the insert to that answer. It is measured while the product is, between its
// sends, so that both have the same load beside them.
type floor struct{ *crew }

// startFloor starts the process that claims. It returns nil where there are no change streams.
func (r *run) startFloor(ctx context.Context) (f *floor, err error) {
	st, err := store.Open(store.Config{Database: r.db.DB, Prefix: rawPrefix})
	if err == nil {
		err = st.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("setting the floor up: %w", err)
	}
	topology, err := st.Topology(ctx)
	if err != nil || !topology.Subscriptions() {
		return nil, err
	}
	f = &floor{crew: &crew{cfg: r.cfg}}
	r.closes = append(r.closes, func(ctx context.Context) error {
		_ = f.Stop(ctx, stopTime) // what counts has been measured
		return dropRaw(ctx, r.db.DB)
	})
	s := spec{URI: r.db.URI, Database: r.db.Name, WorkerID: "floor", Concurrency: 1, Own: !r.here, Floor: true}
	if err := f.hire(s, r.cfg.Executable); err != nil {
		return nil, err
	}
	if _, err := f.begin(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime, errors.New("the process of the floor did not open its change stream"))
	defer cancel()
	return f, f.Await(ctx, func() bool { return f.watching() > 0 })
}

// measureFloor inserts n documents at the pace, the first one half of it from now, and waits for their claims.
func (r *run) measureFloor(ctx context.Context, n int, every time.Duration) error {
	if r.floor == nil {
		return nil
	}
	err := pause(ctx, every/2)
	if err == nil {
		err = r.insertPaced(ctx, n, every)
	}
	if err != nil {
		return fmt.Errorf("measuring the floor: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the change events of the floor did not arrive within a minute"))
	defer cancel()
	return r.floor.Await(ctx, func() bool { return len(r.floor.sent) >= n })
}

// insertPaced inserts each document at its time, however long the one before takes. The progress that is shown is that
// of the sends beside it.
func (r *run) insertPaced(ctx context.Context, n int, every time.Duration) error {
	w, err := newRawWriter(r.db.DB, false, time.UnixMilli(r.cfg.Clock.Now().UnixMilli()))
	if err != nil {
		return err
	}
	var inserts errgroup.Group
	began := r.cfg.Clock.Monotonic()
	for i := range n {
		if pause(ctx, began+time.Duration(i)*every-r.cfg.Clock.Monotonic()) != nil {
			break
		}
		inserts.Go(func() error {
			a := r.args()
			a.Sent = r.cfg.Clock.Now().UnixNano()
			task, err := w.task(i, a)
			if err != nil {
				return err
			}
			return w.insert(ctx, []rawTask{task})
		})
	}
	return cmp.Or(inserts.Wait(), context.Cause(ctx))
}

// claimRaw claims the tasks of [run.insertPaced] when their change events arrive, until ctx ends.
func (w *worker) claimRaw(ctx context.Context) error {
	raw, err := newRawWriter(w.db, false, w.clock.Now().Add(time.Hour)) // the tasks are sent before
	if err != nil {
		return err
	}
	events, err := w.db.Collection(rawPrefix+"tasks").Watch(ctx, mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "insert"}}}}},
		options.ChangeStream().SetMaxAwaitTime(store.StreamAwait).SetBatchSize(0))
	if err != nil {
		return fmt.Errorf("watching for the floor: %w", err)
	}
	defer events.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was read
	w.watching.Store(true)
	claims, call := errgroup.WithContext(ctx)
	for events.Next(call) {
		doc := events.Current.Lookup("fullDocument")
		id, sent := doc.Document().Lookup("_id").StringValue(), doc.Document().Lookup("args", "sent").AsInt64()
		claims.Go(func() error {
			if err := raw.update(call, []rawTask{{id: id}}, 1, raw.claim); err != nil {
				return fmt.Errorf("claiming for the floor: %w", err)
			}
			w.sent(sent)
			return nil
		})
	}
	err = claims.Wait()
	if err == nil && ctx.Err() == nil {
		err = cmp.Or(events.Err(), errors.New("the change stream of the floor has ended"))
	}
	return err
}
