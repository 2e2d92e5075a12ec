package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
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

func archive(*Config) []part { return []part{{"archive", 1, archiving}} }

// archiving keeps a steady load up and lets the worker's own upkeep move finished tasks to
// the history meanwhile: the rate of the load with that, beside the rate just before and
// just after.
func archiving(ctx context.Context, r *run) error {
	n := r.cfg.or(r.cfg.Tasks, 100_000, 5_000)
	alone := r.cfg.lasting(30*time.Second, 3*time.Second)
	want, err := r.finished(ctx, n)
	if err != nil {
		return err
	}
	// Whoever has the permit archives: the bench, which does not, until it lets go.
	if _, err := r.arena.store.Turns.Take(ctx, upkeep.Permit, "bench", 24*time.Hour); err != nil {
		return err
	}
	c, dismiss := r.crew()
	defer dismiss()
	if _, err := c.hireHere(r.spec(0)); err != nil {
		return err
	}
	began, err := c.begin(ctx)
	if err != nil {
		return err
	}
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	fed := make(chan error, 2)
	go func() { fed <- r.feed(feeding, c) }()
	go func() { fed <- r.clear(feeding) }()

	m := &stretches{run: r, crew: c}
	if err = pause(ctx, min(alone/4, 5*time.Second)); err == nil { // until it is steady
		err = m.measure(ctx, "archive/before", func() (bool, error) { return m.passed() >= alone, nil })
	}
	if err == nil {
		err = r.arena.store.Turns.Leave(ctx, upkeep.Permit, "bench")
	}
	if err == nil {
		err = m.wait(ctx, func() (bool, error) { return r.moved(ctx, 1) }) // until the worker has taken it
	}
	if err == nil {
		end := r.cfg.OnMeasure(r.name)
		err = m.measure(ctx, "archive/during", func() (bool, error) { return r.moved(ctx, n) })
		end()
	}
	if err == nil {
		err = m.measure(ctx, "archive/after", func() (bool, error) { return m.passed() >= alone, nil })
	}
	stop()
	for range 2 {
		if ferr := <-fed; ferr != nil {
			err = errors.Join(err, fmt.Errorf("keeping the load up: %w", ferr))
		}
	}
	t := c.totals()
	r.res.measured(int(t.Finished), r.cfg.Clock.Now().Sub(began))
	r.res.counted(t)
	if err != nil {
		return err
	}
	m.compare(n)
	return r.allArrived(ctx, n, want)
}

// clear deletes what the load has finished, a little at a time and all along, so that the
// memory does not fill with it while a million others move. Index: archive, where those are
// the only ones with a time to come.
func (r *run) clear(ctx context.Context) error {
	for pause(ctx, 100*time.Millisecond) == nil {
		later := r.arena.store.Clock.Now().Add(24 * time.Hour)
		_, err := r.arena.db.Collection("tasks").DeleteMany(ctx, bson.D{{Key: "archive_at", Value: bson.D{{Key: "$gt", Value: later}, {Key: "$lt", Value: later.AddDate(100, 0, 0)}}}},
			options.DeleteMany().SetHint(store.IndexArchive))
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("deleting what the load has finished: %w", err)
		}
	}
	return nil
}

// stretches measures the load for a while, several times.
type stretches struct {
	*run
	crew *crew
	from time.Time
	list []span
}

func (m *stretches) passed() time.Duration { return m.cfg.Clock.Now().Sub(m.from) }

// measure measures until over says so, as a result of its own.
func (m *stretches) measure(ctx context.Context, name string, over func() (bool, error)) error {
	m.from = m.cfg.Clock.Now()
	cpu, before := cpuTime(), m.crew.totals().Finished
	err := m.wait(ctx, over) // what was measured until an end is told
	s := span{finished: m.crew.totals().Finished - before, took: m.passed(), cpu: cpuTime() - cpu}
	m.list = append(m.list, s)
	x := Result{Scenario: name, Engine: m.res.Engine, Processes: m.res.Processes, Concurrency: m.res.Concurrency}
	x.measured(int(s.finished), s.took)
	x.Partial = err != nil
	m.extra = append(m.extra, x)
	return err
}

// wait looks until met says so; a worker that ends by itself is an error.
func (m *stretches) wait(ctx context.Context, met func() (bool, error)) error {
	for {
		ok, err := met()
		if ok || err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if err := m.crew.await(ctx, func() bool { return true }); err != nil {
			return err
		}
	}
}

// compare says what the load lost.
func (m *stretches) compare(n int) {
	before, during, after := m.list[0], m.list[1], m.list[2]
	beside := span{finished: before.finished + after.finished, took: before.took + after.took, cpu: before.cpu + after.cpu}
	m.note("%d finished tasks moved to the history within %s: %s/s", n, during.took.Round(100*time.Millisecond), shown(perSecond(n, during.took), 0))
	m.note("the load before %s/s, meanwhile %s/s, after %s/s",
		shown(perSecond(int(before.finished), before.took), 0), shown(perSecond(int(during.finished), during.took), 0), shown(perSecond(int(after.finished), after.took), 0))
	if q := quotient(perSecond(int(during.finished), during.took), perSecond(int(beside.finished), beside.took)); q != nil {
		m.note("meanwhile / before and after: %.2f", *q)
	}
	if q := quotient(beside.cost(), during.cost()); q != nil && m.arena.server != nil {
		m.note("by processor time a task of the load: %.2f", *q)
	}
}

// finished stores n tasks that ended a while ago and are due to move, and returns the sum
// of their checks.
func (r *run) finished(ctx context.Context, n int) (sum uint64, err error) {
	pad, err := codec.EncodeValue("args", args{Pad: strings.Repeat("x", r.cfg.ArgsBytes)}, input.MaxArgsBytes)
	if err != nil {
		return 0, err
	}
	if err := r.arena.store.ReadClock(ctx); err != nil {
		return 0, err
	}
	now := r.arena.store.Clock.Now()
	show := r.progress("finished tasks")
	const chunk = 5000
	for at := 0; at < n; at += chunk {
		tasks := make([]*model.Task, 0, chunk)
		for i := at; i < min(n, at+chunk); i++ {
			result, err := codec.EncodeValue("result", i, input.MaxResultBytes)
			if err != nil {
				return 0, err
			}
			ended := now.Add(-8*24*time.Hour + time.Duration(i%1000)*time.Minute) // within some hours
			t := lifecycle.NewTask(lifecycle.Draft{Type: oldType, Key: fmt.Sprintf("%09d", i), Args: pad}, ended)
			eff := lifecycle.ResolveOptions(t.Options)
			claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "bench-0", ExecID: "00000000-0000-4000-8000-000000000000"}, eff, ended)
			if no != "" {
				return 0, fmt.Errorf("a fresh task is not claimable: %s", no)
			}
			done, err := lifecycle.Finish(claimed, claimed.WorkerStates[0].ExecID, lifecycle.Success(result), eff, ended, 0)
			if err != nil {
				return 0, err
			}
			tasks = append(tasks, done)
			sum += check(done.ID, done.Generation, int64(i))
		}
		if _, err := r.arena.store.Tasks.Insert(ctx, tasks); err != nil {
			return 0, err
		}
		show(min(n, at+chunk), n)
	}
	return sum, nil
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
	have, err := r.arena.db.Collection("task_history").EstimatedDocumentCount(ctx)
	if store.Unreachable(err) {
		return false, nil // for a moment, on a machine that is busy; it is asked again
	}
	if err != nil {
		return false, fmt.Errorf("counting the history: %w", err)
	}
	r.progress("archiving")(int(have), max(n, int(have)))
	return have >= int64(n), nil
}

// allArrived compares what is in the history with what was made, and makes sure that
// nothing of it is left among the tasks.
func (r *run) allArrived(ctx context.Context, n int, want uint64) error {
	left, err := r.arena.db.Collection("tasks").CountDocuments(ctx, bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: model.TaskID("", oldType, "")}, {Key: "$lt", Value: model.TaskID("", oldType, ":")}, // follows the digits
	}}})
	if err != nil {
		return fmt.Errorf("looking for what is left: %w", err)
	}
	cur, err := r.arena.db.Collection("task_history").Find(ctx, bson.D{},
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
