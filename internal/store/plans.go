package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Index names of plans.
const (
	indexLookPlan = "look" // {look_at} of plans, where it exists
	indexLate     = "late" // {status, plan_time, _id} of plans
)

// ErrNoPlan is returned for a plan that does not exist.
var ErrNoPlan = missing("no such plan")

// Plans is the collection plans, and plan_history for those that are over.
type Plans struct {
	decided[repeat.Plan, repeat.Planned]
}

func newPlans(c *core) *Plans {
	return &Plans{decided[repeat.Plan, repeat.Planned]{
		core: c, coll: c.plans, kind: kind{"plan", "plans"},
		of: func(p *repeat.Plan) (string, plans[repeat.Planned]) {
			return p.ID, plans[repeat.Planned]{p.Rev, &p.Decision, &p.Planned, &p.PlannedAt}
		},
		planID: func(p repeat.Planned) string { return p.ID },
	}}
}

// Insert stores new plans, each unless there is one of its id. existed are the indices of those, which a
// lost answer may have stored. held are the indices of plans whose ids another client holds. In a
// transaction it is part of that, which goes on all the same. Index: _id.
func (s *Plans) Insert(ctx context.Context, plans []*repeat.Plan) (existed, held []int, err error) {
	const doing = "storing plan"
	if !InTransaction(ctx) {
		return insertEach(ctx, s.core, s.plans, doing, plans)
	}
	models := make([]mongo.WriteModel, len(plans)) // a collision would end the caller's transaction
	for i, p := range plans {
		doc, err := unlessThere(p)
		if err != nil {
			return nil, nil, &FatalError{Reason: "encoding the plan " + p.ID, Err: err}
		}
		models[i] = mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{d("_id", p.ID)}).SetUpdate(bson.D{d("$setOnInsert", doc)})
	}
	res, err := s.plans.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil {
		return nil, nil, explain(err, doing+"s")
	}
	for i := range plans {
		if _, inserted := res.UpsertedIDs[int64(i)]; !inserted {
			existed = append(existed, i)
		}
	}
	return existed, nil, nil
}

// PlannedSince sets since when plans about which nobody has decided again have something planned.
// Index: _id.
func (s *Plans) PlannedSince(ctx context.Context, plans []*repeat.Plan, since time.Time) error {
	_, err := bulk(ctx, s.core, s.plans, "handing over plan", plans, func(p **repeat.Plan) change {
		return change{id: (*p).ID, guard: bson.D{d("rev", (*p).Rev), d("planned_at", exists)}, update: bson.D{d("$set", bson.D{d("planned_at", since)})}, undone: isNot("planned_at", since)}
	})
	return err
}

// Get reads a plan, also one that is over. Index: _id of both collections.
func (s *Plans) Get(ctx context.Context, id string) (*repeat.Plan, error) {
	for _, coll := range []*mongo.Collection{s.plans, s.planHistory, s.plans} { // it may move meanwhile
		raw, there, err := readOne[bson.Raw](ctx, coll, "reading the plan "+id, bson.D{d("_id", id)})
		if err != nil {
			return nil, err
		}
		if there {
			p, err := s.decode(raw)
			return p, explain(err, "reading the plan "+id)
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoPlan, id)
}

// Past are those of the plans that are in the history, by their ids. Index: _id.
func (s *Plans) Past(ctx context.Context, ids []string) (map[string]*repeat.Plan, error) {
	const doing = "looking for plans that are over"
	found, unread, err := s.readIn(ctx, s.planHistory, doing, bson.D{d("_id", in(ids))}, options.Find())
	if len(unread) > 0 {
		err = errors.Join(err, explain(unread[0].Err, doing))
	}
	out := make(map[string]*repeat.Plan, len(found))
	for _, p := range found {
		out[p.ID] = p
	}
	return out, err
}

// PlanFilter selects plans. Zero fields select everything.
type PlanFilter struct {
	Tenant, Station string // of Tenant model.NoTenant = those without one
	Status          repeat.Status
	Over            bool // those in the history in the place of the others
}

// indexed is the part of the query that the index state answers, and the collection.
func (s *Plans) indexed(f PlanFilter) (bson.D, *mongo.Collection) {
	filter, coll := bson.D{d("status", in([]repeat.Status{repeat.StatusRunning, repeat.StatusError, repeat.StatusCancelled, repeat.StatusFinish}))}, s.plans
	if f.Status != "" {
		filter = bson.D{d("status", f.Status)}
	}
	if f.Over {
		coll = s.planHistory
	}
	return filter, coll
}

// List reads plans in the order of their last changes: those in the collection plans, or those in the
// history. unread are documents that this release cannot read. Index: state of both collections.
func (s *Plans) List(ctx context.Context, f PlanFilter, span Span) (docs []*repeat.Plan, unread []Unreadable, err error) {
	filter, coll := s.indexed(f)
	return s.list(ctx, coll, f, span.where("updated_at", byTenant(filter, f.Tenant)), span.options("updated_at", indexState))
}

// Named is List of the plans of a tenant whose plan_id begins so, ordered by it, after the given id: those in the
// collection plans, or those that are over. Index: _id of both collections.
func (s *Plans) Named(ctx context.Context, tenant string, over bool, prefix, after string, limit int) (docs []*repeat.Plan, unread []Unreadable, err error) {
	f := PlanFilter{Over: over}
	_, coll := s.indexed(f)
	return s.list(ctx, coll, f, bson.D{d("_id", beginsWith(tenant, prefix, after))}, options.Find().SetHint("_id_").SetSort(bson.D{d("_id", 1)}).SetLimit(int64(limit)))
}

func (s *Plans) list(ctx context.Context, coll *mongo.Collection, f PlanFilter, filter bson.D, o *options.FindOptionsBuilder) (docs []*repeat.Plan, unread []Unreadable, err error) {
	if f.Station != "" {
		filter = append(filter, d("station", f.Station))
	}
	if !f.Over {
		filter = append(filter, d("delete_at", absent)) // else it is in the history, too
	}
	return s.readIn(ctx, coll, "listing plans", filter, o.SetProjection(bson.D{d("planned", 0), d("messages", 0)}))
}

// Bound is where a page of [Plans.List] is to end, so that the server looks at [PageExamines] plans at most. Index:
// state of both collections, and no document.
func (s *Plans) Bound(ctx context.Context, f PlanFilter, span Span) (time.Time, error) {
	filter, coll := s.indexed(f)
	return span.bounded(ctx, coll, "listing plans", "updated_at", indexState, filter)
}

// Late reads plans with a step that was due before the given time, also those whose step is being
// cancelled, the longest due first, behind the given one (nil = from the first). They are without
// messages. unread are documents that this release cannot read. Index: late.
func (s *Plans) Late(ctx context.Context, before time.Time, after *repeat.Plan, limit int) (docs []*repeat.Plan, unread []Unreadable, err error) {
	late := bson.D{d("$lte", before)}
	filter := bson.D{d("status", in([]repeat.Status{repeat.StatusRunning, repeat.StatusCancelled})), d("delete_at", absent)}
	if after != nil {
		late = append(late, d("$gte", after.PlanTime)) // it bounds the index
		filter = append(filter, d("$or", bson.A{
			bson.D{d("plan_time", bson.D{d("$gt", after.PlanTime)})},
			bson.D{d("plan_time", after.PlanTime), d("_id", bson.D{d("$gt", after.ID)})},
		}))
	}
	return s.read(ctx, "looking for steps that are late", append(filter, d("plan_time", late)),
		options.Find().SetHint(indexLate).SetSort(bson.D{d("plan_time", 1), d("_id", 1)}).SetLimit(int64(limit)).
			SetProjection(bson.D{d("messages", 0)}))
}

// Leave copies plans that are over, and of which everything planned is carried out, to the history, and has
// them leave the collection plans later: a publish of such an id finds the plan in one of the two. The copy
// goes when the plan has been over for the retention. Nobody decides about a plan that is over, and to do
// it twice changes nothing. held are the ids of those that another client holds: they have not left. Index:
// _id of both collections.
func (s *Plans) Leave(ctx context.Context, plans []*repeat.Plan, leaveAt time.Time, retention time.Duration) (held []string, err error) {
	copies := collect(plans, func(p *repeat.Plan) *repeat.Plan {
		c := *p
		c.Planned, c.PlannedAt, c.DeleteAt = nil, time.Time{}, p.EndedAt.Add(retention)
		return &c
	})
	_, waits, err := insertEach(ctx, s.core, s.planHistory, "storing past plan", copies)
	if err != nil {
		return nil, err
	}
	leave := statement{
		guard:  appendFields(bson.D{d("ended_at", exists), d("delete_at", absent)}),
		update: encoded(bson.D{d("$set", bson.D{d("delete_at", leaveAt)}), d("$unset", bson.D{d("planned_at", ""), d("planned", "")})}),
		byID:   true,
	}
	for i, p := range plans {
		if slices.Contains(waits, i) {
			held = append(held, p.ID)
		} else {
			leave.ids = append(leave.ids, p.ID)
		}
	}
	if len(leave.ids) == 0 {
		return held, nil
	}
	x, err := s.sendTwice(ctx, s.plans, "moving plan to the history", []statement{leave})
	for _, id := range leave.ids {
		if x.held[id] {
			held = append(held, id)
		}
		err = cmp.Or(err, x.refused[id])
	}
	return held, err
}

// Questions are those of a look. No plan is ever due: the task of the next step waits for its time.
// Something waits for ends where the step after one that runs is due. Index of the next one: look.
func (s *Plans) Questions(l Look[*repeat.Plan]) []Question {
	return []Question{
		s.nextQuestion("look_at", l.Now, l.Next),
		s.plannedQuestion(l.LeftBefore, l.Left),
		s.whether(bson.D{d("look_at", bson.D{d("$lte", l.Now)})}, l.Waiting),
	}
}

// RunningQuestion asks whether any plan has a step that waits or runs. Index: late.
func (s *Plans) RunningQuestion(found func()) Question {
	return s.whether(bson.D{d("status", repeat.StatusRunning)}, found)
}
