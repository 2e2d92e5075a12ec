package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// indexPlan is {plan, at, _id} of plan_results.
const indexPlan = "plan"

// Results is the collection plan_results.
type Results struct{ *core }

// Put stores results, each unless it is there. Index: _id.
func (s *Results) Put(ctx context.Context, results []*repeat.Result) error {
	_, err := insertNew(ctx, s.core, s.planResults, "storing plan result", results)
	return err
}

// Ended is a span of results by their ends, which are in [From, Until); a zero time is no bound.
type Ended struct{ From, Until time.Time }

// EndsFor is when the results ended whose steps have a time in [from, until), where a zero time is no bound. Steps run
// one after the other, so their times and the ends of their executions have the same order: it halves the time between,
// and looks at one result of the index each time. none says that there are no such results. Index: plan.
func (s *Results) EndsFor(ctx context.Context, plan string, from, until time.Time) (of Ended, none bool, err error) {
	if !from.IsZero() {
		if of.From, err = s.endOf(ctx, plan, from); err != nil || of.From.IsZero() {
			return of, err == nil, err
		}
	}
	if !until.IsZero() {
		of.Until, err = s.endOf(ctx, plan, until)
	}
	return of, false, err
}

// endOf is the time from which on the ends are of steps that have that time or a later one; zero = there are none.
func (s *Results) endOf(ctx context.Context, plan string, step time.Time) (end time.Time, err error) {
	look := func(order int, at ...bson.E) (r repeat.Result, there bool, err error) {
		return readOne[repeat.Result](ctx, s.planResults, "finding the results of the plan "+plan, append(bson.D{d("plan", plan)}, at...),
			options.FindOne().SetHint(indexPlan).SetSort(bson.D{d("plan", order), d("at", order), d("_id", order)}).SetProjection(fields("at", "plan_time")))
	}
	last, there, err := look(-1)
	if err != nil || !there || last.PlanTime.Before(step) {
		return time.Time{}, err
	}
	first, _, err := look(1) // a step may end long before its time: somebody cancels its task
	if err != nil || !first.PlanTime.Before(step) {
		return first.At, err
	}
	earlier := first.At
	for end = last.At; end.Sub(earlier) > time.Millisecond; {
		at := earlier.Add(end.Sub(earlier) / 2).Truncate(time.Millisecond)
		switch r, _, err := look(1, d("at", bson.D{d("$gte", at)})); { // the last one is there
		case err != nil:
			return time.Time{}, err
		case r.PlanTime.Before(step):
			earlier = r.At
		default:
			end = at
		}
	}
	return end, nil
}

// ResultPage is a page of a plan's results.
type ResultPage struct {
	Ended  Ended
	Newest bool           // the newest first
	After  *repeat.Result // the page begins behind it; nil = at the first
	Limit  int
	States bool // without what the participants returned
}

// List reads a page of a plan's results. It ends at its limit, or when they have [pageBytes] together. more says that
// there are others. Index: plan.
func (s *Results) List(ctx context.Context, plan string, p ResultPage) (page []*repeat.Result, more bool, err error) {
	order, over, from := 1, "$gt", "$gte"
	if p.Newest {
		order, over, from = -1, "$lt", "$lte"
	}
	filter := bson.D{d("plan", plan)}
	if ended := timeRange(p.Ended.From, p.Ended.Until); ended != nil {
		filter = append(filter, d("$and", bson.A{bson.D{d("at", ended)}}))
	}
	if p.After != nil {
		filter = append(filter, d("at", bson.D{d(from, p.After.At)}), d("$or", bson.A{ // the first bounds the index
			bson.D{d("at", bson.D{d(over, p.After.At)})},
			bson.D{d("at", p.After.At), d("_id", bson.D{d(over, p.After.ID)})},
		}))
	}
	// One more than the limit tells that there are others.
	o := options.Find().SetHint(indexPlan).SetSort(bson.D{d("plan", order), d("at", order), d("_id", order)}).SetLimit(int64(p.Limit + 1))
	if p.States {
		o.SetProjection(bson.D{d("result", 0)})
	}
	doing := "reading the results of the plan " + plan
	var unread error
	bytes := 0
	err = readEach(ctx, s.planResults, doing, filter, o, func(doc bson.Raw) bool {
		if more = len(page) == p.Limit || bytes >= pageBytes; more {
			return false
		}
		r := new(repeat.Result)
		if unread = codec.Decode(doc, r); unread != nil {
			return false
		}
		page, bytes = append(page, r), bytes+len(doc)
		return true
	})
	if err == nil {
		err = explain(unread, doing)
	}
	return page, more, err
}

// ResultFilter selects results that are published. A zero field selects all.
type ResultFilter struct{ Tenant, Description, PlanID string }

// ResultStream returns results as they are stored.
type ResultStream struct {
	watched
	of *Results
}

// Watch opens a stream of results: those after the given token (nil = from now on). The caller holds a
// seat, see [Seats.AcquireSubscription].
func (s *Results) Watch(ctx context.Context, f ResultFilter, token bson.Raw) (*ResultStream, error) {
	match := bson.D{d("operationType", "insert")}
	for _, x := range [][2]string{{"tenant", f.Tenant}, {"description", f.Description}, {"plan_id", f.PlanID}} {
		switch {
		case x[0] == "tenant" && x[1] == model.NoTenant:
			match = append(match, d("fullDocument.tenant", absent))
		case x[1] != "":
			match = append(match, d("fullDocument."+x[0], x[1]))
		}
	}
	cs, err := watch(ctx, s.durable(s.planResults), token, bson.D{d("$match", match)})
	if err != nil {
		return nil, err
	}
	return &ResultStream{watched: cs, of: s}, nil
}

// Next waits for the next result; nil if there was none for [StreamAwait]. It logs results that this release cannot
// read, and goes on with the next one.
func (st *ResultStream) Next(ctx context.Context) (*repeat.Result, error) {
	for {
		if ok, err := st.next(ctx); !ok {
			return nil, err
		}
		if r := st.of.published(st.cs.Current); r != nil {
			return r, nil
		}
	}
}

// published is the result whose insert an event tells; nil if this release cannot read it, which it logs.
func (s *core) published(event bson.Raw) *repeat.Result {
	raw, _ := event.Lookup("fullDocument").DocumentOK()
	r := new(repeat.Result)
	if err := codec.Decode(raw, r); err != nil {
		s.complain(s.planResults, raw, err)
		return nil
	}
	return r
}
