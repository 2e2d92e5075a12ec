package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
)

// plans measure how late the steps of plans start beside the ticks of rules, what a plan of one step
// costs beside a delayed send and the insert of a task by the driver, and what plans cost that are not due.
func plans(c *Config) []part {
	few, sent := c.or(c.Tasks, 10_000, 1_000), new(float64)
	rest := c.or(c.Tasks, 100_000, 2_000)
	return []part{
		plansDue(c), oneShots("plan/sent", few, sent, (*run).sendAt), oneShots("plan/published", few, sent, (*run).publishAt),
		plansAtRest(c, "plan/none", 0), plansAtRest(c, "plan/many", rest),
	}
}

// runsPlans has the worker's process run an engine, as `mscheduler work --plan` does.
func runsPlans(_ *run, s *spec) { s.Plans = true }

// onePlan is a plan of one step at that time.
func (r *run) onePlan(i int, at time.Time) repeat.Spec {
	return repeat.Spec{PlanID: fmt.Sprintf("p%06d", i), Station: noop.Name(), PlanType: repeat.Time, PlanTime: at, NoKeep: true, Messages: []any{r.args().Pad}}
}

// publish publishes plans of one step, each at its time.
func (r *run) publish(ctx context.Context, n int, at func(i int) time.Time) error {
	p, err := plan.New(plan.Config{Database: r.db.DB, Clock: r.cfg.Clock})
	if err != nil {
		return err
	}
	show := r.progress("publishing")
	return inTurn(ctx, n, sendBatch, 1, func(ctx context.Context, from, to int) error {
		specs := make([]repeat.Spec, 0, to-from)
		for i := from; i < to; i++ {
			specs = append(specs, r.onePlan(i, at(i)))
		}
		_, err := p.PublishMany(ctx, specs)
		show(to, n)
		return err
	})
}

// plansDue measures how long after their times the handlers of steps start: of plans that become due one
// after the other, in three processes that are engines, too, and of the ticks of rules in the same time.
func plansDue(c *Config) part {
	n, lasts := c.or(c.Tasks, 100_000, 2_000), c.lasting(time.Minute, 5*time.Second)
	const rules = 20
	ticks := rules * int(lasts/time.Second)
	return part{
		name: "plan/due", workers: 3,
		orders: func(_ *run, s *spec) { s.Plans, s.Starts = true, true },
		measure: func(ctx context.Context, r *run) error {
			if err := r.readClock(ctx); err != nil {
				return err
			}
			s, err := r.scheduler(ctx)
			if err != nil {
				return err
			}
			// As long as the publishing of so many may take comes before.
			from := r.db.Store.Clock.Now().Truncate(time.Second).Add(4*time.Second + time.Duration(n)*500*time.Microsecond)
			err = r.rules(ctx, s.Periodic, rules, func(i int) schedule.Spec {
				spec := r.tickSpec(i, "* * * * * *", from)
				spec.EndAt = from.Add(lasts)
				return spec
			})
			if err != nil {
				return err
			}
			s.start()
			if err := r.publish(ctx, n, func(i int) time.Time { return from.Add(time.Duration(i) * lasts / time.Duration(n)) }); err != nil {
				return err
			}
			if late := r.db.Store.Clock.Now().Sub(from); late > 0 {
				r.note("the last plan was published %.1f s after the first one was due", late.Seconds())
			}
			err = r.awaitStarts(ctx, "starting", n+ticks)
			if err == nil {
				err = r.awaitOver(ctx, n)
			}
			tickLate, failed := r.startsOfPlans(ctx)
			r.res.measured(len(r.late), r.cfg.Clock.Now().Sub(from))
			if l := percentiles(tickLate); l != nil {
				r.note("beside them %d ticks of %d rules: p50 %.1f ms, p99 %.1f ms, max %.1f ms", len(tickLate), rules, l.P50, l.P99, l.Max)
			}
			return errors.Join(err, failed)
		},
		after: func(r *run) { r.note("latency: from the time of a step to the start of its handler") },
	}
}

// awaitOver waits until so many plans are over.
func (r *run) awaitOver(ctx context.Context, n int) error {
	show := r.progress("ending")
	for {
		over, err := r.db.DB.Collection("plan_history").EstimatedDocumentCount(ctx)
		if err != nil {
			return fmt.Errorf("counting plans that are over: %w", err)
		}
		if show(int(over), n); int(over) >= n {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// startsOfPlans sets how late the handlers of steps started, and returns that of ticks. It is an error
// if one started twice.
func (r *run) startsOfPlans(ctx context.Context) (ticks []float64, err error) {
	var starts []start
	r.crew.Look(func() { starts = append(starts, r.crew.starts...) })
	began := make(map[string]int64, len(starts))
	for _, s := range starts {
		if _, twice := began[s.TaskID]; twice {
			err = fmt.Errorf("the task %s started twice", s.TaskID)
		}
		began[s.TaskID] = s.At
	}
	cur, failed := r.db.DB.Collection("tasks").Find(ctx, bson.D{{Key: "type", Value: noop.Name()}},
		options.Find().SetProjection(bson.D{{Key: "origin.tick.nominal", Value: 1}, {Key: "args.plan_time", Value: 1}}))
	if failed != nil {
		return nil, errors.Join(err, fmt.Errorf("reading the times of steps: %w", failed))
	}
	defer cur.Close(ctx) //nolint:errcheck // it was read
	for cur.Next(ctx) {
		at, ran := began[cur.Current.Lookup("_id").StringValue()]
		if !ran {
			continue
		}
		if due, is := cur.Current.Lookup("args", "plan_time").TimeOK(); is {
			r.late = append(r.late, round(millis(time.Unix(0, at).Sub(due))))
		} else if due, is := cur.Current.Lookup("origin", "tick", "nominal").TimeOK(); is {
			ticks = append(ticks, round(millis(time.Unix(0, at).Sub(due))))
		}
	}
	return ticks, errors.Join(err, cur.Err())
}

// sendAt sends n tasks that start at that time.
func (r *run) sendAt(ctx context.Context, n int, at time.Time) error {
	return inTurn(ctx, n, sendBatch, 1, func(ctx context.Context, from, to int) error {
		return r.send(ctx, to-from, producer.At(at))
	})
}

func (r *run) publishAt(ctx context.Context, n int, at time.Time) error {
	return r.publish(ctx, n, func(int) time.Time { return at })
}

// oneShots measures n tasks that start at one time, from their sends to their ends, and notes the sends
// by themselves. Those that are sent first, and inserts by the driver, are the yardsticks of plans.
func oneShots(name string, n int, sent *float64, send func(*run, context.Context, int, time.Time) error) part {
	planned := name == "plan/published"
	var record spent
	return part{
		name: name, workers: 1, orders: runsPlans,
		load: func(ctx context.Context, r *run) error { // not as the part's yardstick: its rate says nothing beside that of tasks that wait
			raw, err := raw(ctx, r.db.DB, yardstick{tasks: n, batch: sendBatch, insert: true}, r.cfg.ArgsBytes, r.progress("raw inserts"))
			r.writes.add(raw)
			return err
		},
		measure: func(ctx context.Context, r *run) error {
			workers := r.counts
			r.counts = func() totals { return workers().plus(r.meter.totals(), 1) }
			r.meter.reset()
			cpu := cpuTime()
			at := r.cfg.Clock.Now().Add(2*time.Second + time.Duration(n)*500*time.Microsecond)
			if err := send(r, ctx, n, at); err != nil {
				return err
			}
			if each := (&spent{tasks: n, cpu: cpuTime() - cpu}).cpuEach(); each != nil {
				r.note("a send: processor time %.0f µs, server included%s; commands of %d sends: %s", *each, r.besideInsert(*each), n, perMinute(r.meter.totals().Commands, time.Minute))
			}
			r.meter.reset()
			err := r.awaitEnds(ctx, "ending", n)
			if err == nil && planned {
				err = r.awaitOver(ctx, n)
			}
			r.ended()
			if err == nil && planned {
				record, err = r.rawRecords(ctx)
			}
			return err
		},
		after: func(r *run) {
			switch {
			case r.cpu == nil:
			case !planned:
				*sent = *r.cpu
				r.note("processor time to the end, server included: %.0f µs%s", *sent, r.besideInsert(*sent))
			case *sent > 0:
				r.note("processor time to the end, server included: a plan %.0f µs, a delayed send %.0f µs, %.2f%s", *r.cpu, *sent, *r.cpu / *sent, r.besideInsert(*r.cpu))
				if own := record.cpuEach(); own != nil {
					r.note("the writes of a plan's own record by the driver %.0f µs: a plan costs %.2f of these and a delayed send", *own, *r.cpu/(*own+*sent))
				}
			}
		},
	}
}

// rawRecords writes by the driver, in collections of its own, what plans that are over have beside their
// tasks: the plan, the decision at its end, its result, its copy in the history, the mark that it is over.
func (r *run) rawRecords(ctx context.Context) (spent, error) {
	st, err := store.Open(store.Config{Database: r.db.DB, Prefix: rawPrefix})
	if err == nil {
		err = st.Ready(ctx)
	}
	var over, results []bson.Raw
	if err == nil {
		over, err = r.documents(ctx, "plan_history")
	}
	if err == nil {
		results, err = r.documents(ctx, "plan_results")
	}
	if err != nil {
		return spent{}, fmt.Errorf("setting the raw records up: %w", err)
	}
	cpu := cpuTime()
	err = inTurn(ctx, min(len(over), len(results)), sendBatch, 1, func(ctx context.Context, from, to int) error {
		return r.rawRecord(ctx, over[from:to], results[from:to])
	})
	out := spent{tasks: len(over), cpu: cpuTime() - cpu}
	r.apart += out.cpu
	return out, err
}

func (r *run) rawRecord(ctx context.Context, over, results []bson.Raw) error {
	coll := func(name string) *mongo.Collection { return r.db.DB.Collection(rawPrefix + name) }
	ids := make(bson.A, len(over))
	decisions := make([]mongo.WriteModel, len(over))
	for i, doc := range over {
		ids[i] = doc.Lookup("_id")
		set := bson.D{{Key: "planned", Value: bson.A{bson.D{{Key: "id", Value: "2.1"}, {Key: "do", Value: "leave"}, {Key: "step", Value: int64(1)}}}}}
		for _, field := range []string{"done", "exec_time", "real_repet", "last_state", "status", "reason", "rev", "decision", "updated_at", "ended_at"} {
			if v, err := doc.LookupErr(field); err == nil {
				set = append(set, bson.E{Key: field, Value: v})
			}
		}
		decisions[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: ids[i]}, {Key: "rev", Value: doc.Lookup("rev")}}).SetUpdate(bson.D{{Key: "$set", Value: set}})
	}
	unordered := options.InsertMany().SetOrdered(false)
	_, err := coll("plans").InsertMany(ctx, over, unordered)
	if err == nil {
		_, err = coll("plan_results").InsertMany(ctx, results, unordered)
	}
	if err == nil {
		_, err = coll("plans").BulkWrite(ctx, decisions, options.BulkWrite().SetOrdered(false))
	}
	if err == nil {
		_, err = coll("plan_history").InsertMany(ctx, over, unordered)
	}
	if err == nil {
		_, err = coll("plans").UpdateMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "delete_at", Value: r.cfg.Clock.Now().Add(time.Hour)}}}, {Key: "$unset", Value: bson.D{{Key: "planned", Value: ""}}}})
	}
	if err != nil {
		return fmt.Errorf("writing raw records: %w", err)
	}
	return nil
}

// documents reads a collection.
func (r *run) documents(ctx context.Context, name string) (out []bson.Raw, err error) {
	cur, err := r.db.DB.Collection(name).Find(ctx, bson.D{})
	if err == nil {
		err = cur.All(ctx, &out)
	}
	return out, err
}

// besideInsert compares processor time, in microseconds, with that of the insert of a task by the driver; "" = that
// is not known.
func (r *run) besideInsert(each float64) string {
	raw := r.writes.cpuEach()
	if raw == nil {
		return ""
	}
	return fmt.Sprintf(", a raw insert %.0f µs, %.2f", *raw, each / *raw)
}

// plansAtRest measures what a worker with an engine costs where there are n plans, one due each second.
func plansAtRest(c *Config, name string, n int) part {
	return part{
		name: name, workers: 1, settle: 2 * time.Second,
		orders: func(_ *run, s *spec) { s.Plans, s.Latencies = true, true }, // events say when it watches
		load: func(ctx context.Context, r *run) error {
			if n == 0 {
				return nil
			}
			from := r.cfg.Clock.Now()
			return r.publish(ctx, n, func(i int) time.Time { return from.Add(time.Duration(i) * time.Second) })
		},
		measure: func(ctx context.Context, r *run) error {
			before, ended := r.counts(), r.crew.totals().Finished
			took, err := r.rest(ctx, "resting", c.lasting(time.Minute, 10*time.Second))
			r.res.measured(int(r.crew.totals().Finished-ended), took)
			used := r.counts().plus(before, -1)
			r.note("commands a minute: %s", perMinute(used.Commands, took))
			r.note("processor time of the process: %.2f ms a second", float64(used.CPU)/1e6/took.Seconds())
			return err
		},
	}
}
