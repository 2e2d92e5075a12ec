package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The collection rates holds, for each type and limit_key with a rate, the first start
// that nobody has reserved, and the rate by which that was. One that is two days old says as
// much as none: no rate's span is longer than a day.
const rateKept = 48 * time.Hour

type rateDoc struct {
	ID    string `bson:"_id"`
	Next  int64  `bson:"next"` // microseconds since 1970
	Count int    `bson:"count"`
	Per   int64  `bson:"per"` // microseconds
}

// next is the first start that is free by the rate.
func (d *rateDoc) next(rate model.RateLimit) time.Time {
	old := model.RateLimit{Count: d.Count, Per: time.Duration(d.Per) * time.Microsecond}
	return lifecycle.FollowRate(rate, old, time.UnixMicro(d.Next).UTC())
}

// Reserve reserves up to want starts, none before from (zero = any), and says when the
// next comes; want 0 only looks. Under load it is one round trip. Index: _id.
func (s *Rates) Reserve(ctx context.Context, of LimitOf, rate model.RateLimit, pace lifecycle.Pace, from time.Time, want int) (lifecycle.Starts, error) {
	id := of.prefix("")
	if want > 0 && from.IsZero() {
		got, ok, err := s.addStarts(ctx, id, rate, pace, want)
		if ok || err != nil {
			return got, err
		}
	}
	for {
		doc, there, err := readOne[rateDoc](ctx, s.rates, "reading the rate of "+id, bson.D{d("_id", id)})
		if err != nil {
			return lifecycle.Starts{}, err
		}
		var next time.Time
		if there {
			next = doc.next(rate)
		}
		got := lifecycle.ReserveStarts(rate, pace, next, s.Clock.Now(), from, want)
		if got.Count == 0 {
			return got, nil
		}
		fields := bson.D{d("next", got.Next.UnixMicro()), d("count", rate.Count), d("per", rate.Per.Microseconds()), d("at", s.Clock.Now())}
		first := int64(1)
		if !there {
			_, err = s.rates.InsertOne(ctx, append(bson.D{d("_id", id)}, fields...))
		} else {
			var res *mongo.UpdateResult
			res, err = s.rates.UpdateOne(ctx, bson.D{d("_id", id), d("next", doc.Next)}, bson.D{d("$set", fields)})
			if err == nil {
				first = res.MatchedCount
			}
		}
		switch {
		case IsDuplicate(err):
		case err != nil:
			return lifecycle.Starts{}, explain(err, "reserving starts of "+id)
		case first > 0:
			return got, nil
		}
		// Somebody else reserved first: they made progress, so this loop does, too.
	}
}

// addStarts reserves starts where the next one is such as this process can use, whichever
// that is: nobody needs to read it before, and nobody's reservation refuses another's.
func (s *Rates) addStarts(ctx context.Context, id string, rate model.RateLimit, pace lifecycle.Pace, want int) (got lifecycle.Starts, ok bool, err error) {
	now := s.Clock.Now()
	step := lifecycle.TakeStarts(rate, pace, time.UnixMicro(0).UTC(), want).Next.UnixMicro()
	var doc rateDoc
	err = s.rates.FindOneAndUpdate(ctx, bson.D{d("_id", id), d("count", rate.Count), d("per", rate.Per.Microseconds()),
		d("next", bson.D{d("$gte", lifecycle.EarliestStart(rate, pace, now).UnixMicro()), d("$lte", now.Add(pace.Ahead()).UnixMicro())})},
		bson.D{d("$inc", bson.D{d("next", step)}), d("$set", bson.D{d("at", now)})},
		options.FindOneAndUpdate().SetReturnDocument(options.Before)).Decode(&doc)
	if isNone(err) {
		return got, false, nil
	}
	if err != nil {
		return got, false, explain(err, "reserving starts of "+id)
	}
	return lifecycle.TakeStarts(rate, pace, time.UnixMicro(doc.Next).UTC(), want), true, nil
}

// Next are the first starts that nobody has reserved, of those that have any reserved.
// Index: _id.
func (s *Rates) Next(ctx context.Context, of []LimitOf, rate model.RateLimit) (map[LimitOf]time.Time, error) {
	next := make(map[LimitOf]time.Time, len(of))
	if len(of) == 0 {
		return next, nil
	}
	ids, named := make([]string, len(of)), make(map[string]LimitOf, len(of))
	for i, o := range of {
		ids[i] = o.prefix("")
		named[ids[i]] = o
	}
	docs, err := readAll[rateDoc](ctx, s.rates, "reading rates", bson.D{d("_id", in(ids))})
	if err != nil {
		return nil, err
	}
	for i := range docs {
		next[named[docs[i].ID]] = docs[i].next(rate)
	}
	return next, nil
}

// Return gives the start at back that nobody will use, where it is the last that was
// reserved; next is the one after it. Index: _id.
func (s *Rates) Return(ctx context.Context, of LimitOf, at, next time.Time) (returned bool, err error) {
	res, err := s.rates.UpdateOne(ctx, bson.D{d("_id", of.prefix("")), d("next", next.UnixMicro())},
		bson.D{d("$set", bson.D{d("next", at.UnixMicro())})})
	if err != nil {
		return false, explain(err, "releasing a reserved start of "+of.prefix(""))
	}
	return res.MatchedCount > 0, nil
}
