package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
)

// oldType is what the finished tasks are, beside those of the steady load.
const oldType = "bench.old"

// archive keeps a steady load up and lets the worker's own upkeep move finished tasks to
// the history meanwhile: the rate of the load with that, beside the rate just before and
// just after.
func archive(c *Config) []part {
	n := c.or(c.Tasks, 100_000, 5_000)
	alone := c.lasting(30*time.Second, 3*time.Second)
	a := &archiving{n: n, alone: alone}
	return []part{{
		name: "archive", workers: 1, here: true, profiles: true,
		load: func(ctx context.Context, r *run) (err error) {
			if a.want, err = r.finished(ctx, n); err != nil {
				return err
			}
			// Whoever has the permit archives: the bench, which does not, until it lets go.
			_, err = r.db.Store.Turns.Take(ctx, upkeep.Permit, "bench", 24*time.Hour, false)
			return err
		},
		measure: func(ctx context.Context, r *run) error {
			err := beside(ctx, func(ctx context.Context) error { return a.measure(ctx, r) }, r.feed, r.clear)
			r.res.measured(int(r.crew.totals().Finished), r.cfg.Clock.Now().Sub(r.began))
			if err != nil {
				return err
			}
			a.compare(r)
			return r.allArrived(ctx, n, a.want)
		},
	}}
}

// archiving is what the parts of an archive know of each other.
type archiving struct {
	n                     int
	alone                 time.Duration // how long the load is measured alone
	want                  uint64        // the sum of the checks
	before, during, after span
}

// measure measures the load before, during and after, each as a result of its own.
func (a *archiving) measure(ctx context.Context, r *run) error {
	if err := pause(ctx, min(a.alone/4, 5*time.Second)); err != nil { // until it is steady
		return err
	}
	alone := func(passed time.Duration) (bool, error) { return passed >= a.alone, nil }
	all := func(time.Duration) (bool, error) { return r.allMoved(ctx, a.n) }
	span := func(name string, s *span, over func(time.Duration) (bool, error)) (err error) {
		*s, err = r.span(ctx, func(passed time.Duration, ended int64) (bool, error) {
			if ended == 0 { // on a slow machine: it has no rate that could be compared
				return false, nil
			}
			return over(passed)
		})
		r.also(name, *s, err != nil)
		return err
	}
	if err := span("archive/before", &a.before, alone); err != nil {
		return err
	}
	if err := r.db.Store.Turns.Leave(ctx, upkeep.Permit, "bench"); err != nil {
		return err
	}
	begun := func(time.Duration, int64) (bool, error) { return r.moved(ctx, 1) }
	if _, err := r.span(ctx, begun); err != nil { // until the worker has taken it
		return err
	}
	end := r.cfg.OnMeasure(r.name)
	err := span("archive/during", &a.during, all)
	end()
	if err != nil {
		return err
	}
	return span("archive/after", &a.after, alone)
}

// clear deletes what the load has finished, a little at a time and all along, so that the
// memory does not fill with it while a million others move. Index: archive, where those are
// the only ones with a time to come.
func (r *run) clear(ctx context.Context) error {
	for pause(ctx, 100*time.Millisecond) == nil {
		later := r.db.Store.Clock.Now().Add(24 * time.Hour)
		_, err := r.db.DB.Collection("tasks").DeleteMany(ctx, bson.D{{Key: "archive_at", Value: bson.D{{Key: "$gt", Value: later}, {Key: "$lt", Value: later.AddDate(100, 0, 0)}}}},
			options.DeleteMany().SetHint(store.IndexArchive))
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("deleting what the load has finished: %w", err)
		}
	}
	return nil
}

// compare says what the load lost.
func (a *archiving) compare(r *run) {
	before, during, after := a.before, a.during, a.after
	alone := before.spent
	alone.add(after.spent)
	r.note("%d finished tasks moved to the history within %s: %s/s", a.n, during.took.Round(100*time.Millisecond), shown(perSecond(a.n, during.took), 0))
	r.note("the load before %s/s, meanwhile %s/s, after %s/s", shown(before.rate(), 0), shown(during.rate(), 0), shown(after.rate(), 0))
	if q := quotient(during.rate(), alone.rate()); q != nil {
		r.note("meanwhile / before and after: %.2f", *q)
	}
	if q := quotient(alone.cpuEach(), during.cpuEach()); q != nil && r.db.Embedded() {
		r.note("by processor time a task of the load: %.2f", *q)
	}
}

// finished stores n tasks that ended a while ago and are due to move, and returns the sum
// of their checks.
func (r *run) finished(ctx context.Context, n int) (sum uint64, err error) {
	pad, err := codec.EncodeValue("args", r.args(), input.MaxArgsBytes)
	if err != nil {
		return 0, err
	}
	if err := r.db.Store.ReadClock(ctx); err != nil {
		return 0, err
	}
	now := r.db.Store.Clock.Now()
	show := r.progress("finished tasks")
	err = inTurn(ctx, n, chunk, 1, func(ctx context.Context, from, to int) error {
		var tasks []*model.Task
		for i := from; i < to; i++ {
			result, err := codec.EncodeValue("result", i, input.MaxResultBytes)
			if err != nil {
				return err
			}
			ended := now.Add(-8*24*time.Hour + time.Duration(i%1000)*time.Minute) // within some hours
			l, err := newLife(lifecycle.Draft{Type: oldType, Key: fmt.Sprintf("%09d", i), Args: pad}, result, ended)
			if err != nil {
				return err
			}
			tasks = append(tasks, l.done)
			sum += check(l.done.ID, l.done.Generation, int64(i))
		}
		defer show(to, n)
		_, err := r.db.Store.Tasks.Insert(ctx, tasks)
		return err
	})
	return sum, err
}

// check is a number that another task, life or result has not; their sum does not depend
// on the order.
func check(id string, generation, result int64) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d %d", id, generation, result) // never fails, by its contract
	return h.Sum64()
}

// moved says whether so many are in the history.
func (r *run) moved(ctx context.Context, n int) (bool, error) {
	have, err := r.db.DB.Collection("task_history").EstimatedDocumentCount(ctx)
	if store.Unreachable(err) {
		return false, nil // for a moment, on a machine that is busy; it is asked again
	}
	if err != nil {
		return false, fmt.Errorf("counting the history: %w", err)
	}
	r.progress("archiving")(int(have), max(n, int(have)))
	return have >= int64(n), nil
}

// allMoved says whether so many are in the history, and none is left among the tasks, from
// which they are removed afterwards.
func (r *run) allMoved(ctx context.Context, n int) (bool, error) {
	if enough, err := r.moved(ctx, n); !enough {
		return false, err
	}
	left, err := r.unmoved(ctx)
	if store.Unreachable(err) {
		return false, nil
	}
	return left == 0, err
}

// unmoved counts what is left of it among the tasks.
func (r *run) unmoved(ctx context.Context) (int64, error) {
	left, err := r.db.DB.Collection("tasks").CountDocuments(ctx, bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: model.TaskID("", oldType, "")}, {Key: "$lt", Value: model.TaskID("", oldType, ":")}, // follows the digits
	}}})
	if err != nil {
		return 0, fmt.Errorf("looking for what is left: %w", err)
	}
	return left, nil
}

// allArrived compares what is in the history with what was made, and makes sure that
// nothing of it is left among the tasks.
func (r *run) allArrived(ctx context.Context, n int, want uint64) error {
	left, err := r.unmoved(ctx)
	if err != nil {
		return err
	}
	cur, err := r.db.DB.Collection("task_history").Find(ctx, bson.D{},
		options.Find().SetProjection(bson.D{{Key: "task_id", Value: 1}, {Key: "generation", Value: 1}, {Key: "result", Value: 1}}))
	if err != nil {
		return fmt.Errorf("reading the history: %w", err)
	}
	arrived, sum := 0, uint64(0)
	for cur.Next(ctx) {
		var doc struct {
			TaskID     string `bson:"task_id"`
			Generation int64  `bson:"generation"`
			Result     int64  `bson:"result"`
		}
		if err := cur.Decode(&doc); err != nil {
			return errors.Join(fmt.Errorf("reading the history: %w", err), cur.Close(ctx))
		}
		arrived++
		sum += check(doc.TaskID, doc.Generation, doc.Result)
	}
	if err := cur.Err(); err != nil {
		return fmt.Errorf("reading the history: %w", err)
	}
	if arrived != n || left != 0 || sum != want {
		return fmt.Errorf("%d tasks were to move: %d arrived with the sum %x instead of %x, and %d are left", n, arrived, sum, want, left)
	}
	r.note("all %d arrived once, with what they had: sum %x", n, sum)
	return nil
}
