package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// PageExamines is about how many documents the server looks at for a page of a list whose index does not select
// all that the filter does; more only if they have the same time.
const PageExamines = 2000

// Span is a stretch of a list that is sorted by a time and an id: the newest first, or the oldest.
type Span struct {
	Oldest bool      // the oldest first
	At     time.Time // the stretch begins behind this time and ID; zero = at the beginning of the list
	ID     string    // "" = behind all that have the time
	Until  time.Time // the stretch ends with this time; zero = at the end of the list
	Limit  int
}

// where adds the stretch to a query. Its first condition bounds the index.
func (s Span) where(field string, q bson.D) bson.D {
	on, from, to := "$lt", "$lte", "$gte"
	if s.Oldest {
		on, from, to = "$gt", "$gte", "$lte"
	}
	var within bson.D
	if !s.At.IsZero() {
		within = append(within, d(from, s.At))
		if s.ID == "" {
			within = bson.D{d(on, s.At)}
		} else {
			q = append(q, d("$or", bson.A{
				bson.D{d(field, bson.D{d(on, s.At)})}, bson.D{d(field, s.At), d("_id", bson.D{d(on, s.ID)})},
			}))
		}
	}
	if !s.Until.IsZero() {
		within = append(within, d(to, s.Until))
	}
	if len(within) > 0 {
		q = append(q, d("$and", bson.A{bson.D{d(field, within)}}))
	}
	return q
}

func (s Span) options(field, index string) *options.FindOptionsBuilder {
	order := -1
	if s.Oldest {
		order = 1
	}
	return options.Find().SetHint(index).SetSort(bson.D{d(field, order), d("_id", order)}).SetLimit(int64(s.Limit))
}

// bounded is where the server is to stop: at the time that so many documents of the index have, which the query
// selects, behind the beginning of the span. Zero = there are fewer. It looks at the index alone.
func (s Span) bounded(ctx context.Context, coll *mongo.Collection, doing, field, index string, q bson.D) (time.Time, error) {
	s.Limit = 1
	doc, err := readAll[bson.Raw](ctx, coll, doing, s.where(field, q), s.options(field, index).
		SetSkip(PageExamines-1).SetProjection(bson.D{d("_id", 0), d(field, 1)}))
	if err != nil || len(doc) == 0 {
		return time.Time{}, err
	}
	at, _ := doc[0].Lookup(field).TimeOK()
	return at, nil
}
