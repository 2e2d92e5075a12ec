package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/model"
)

// The collection rates holds, for each type and limit_key with a rate, the first start
// that nobody has reserved. One that is two days old says as much as none: no rate's span
// is longer than a day.
const rateKept = 48 * time.Hour

type rateDoc struct {
	Next int64 `bson:"next"` // microseconds since 1970
}

// ReserveStarts reserves up to want of the start times that are good now, and says when
// the next comes; want 0 only looks. Index: _id.
func (s *Store) ReserveStarts(ctx context.Context, of SlotOf, rate model.RateLimit, want int) (model.Starts, error) {
	id := of.prefix("")
	for {
		var doc rateDoc
		err := s.rates.FindOne(ctx, bson.D{d("_id", id)}).Decode(&doc)
		none := isNone(err)
		if err != nil && !none {
			return model.Starts{}, explain(err, "reading the rate of "+id)
		}
		var next time.Time
		if !none {
			next = time.UnixMicro(doc.Next).UTC()
		}
		got := rate.Reserve(next, s.Clock.Now(), want)
		if got.Count == 0 {
			return got, nil
		}
		fields := bson.D{d("next", got.Next.UnixMicro()), d("at", s.Clock.Now())}
		first := int64(1)
		if none {
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
			return model.Starts{}, explain(err, "reserving starts of "+id)
		case first > 0:
			return got, nil
		}
		// Somebody else reserved first: they made progress, so this loop does, too.
	}
}
