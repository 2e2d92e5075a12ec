package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/measure"
)

// Series is the collection series: what all processes together have done in each slot of time, for charts.
type Series struct {
	*core
	// Within bounds a record; defaults to 2 s. What its caller does next must not wait long, and a stop neither.
	Within time.Duration
}

// SeriesSlot is one document of series: a slot of one type, or of all types together.
type SeriesSlot struct {
	ID    string                       `bson:"_id"`
	Type  string                       `bson:"type"` // "" = all types together
	At    time.Time                    `bson:"at"`   // when it begins
	Ended map[string]int64             `bson:"ended"`
	Delay measure.Histogram            `bson:"delay"`
	Ran   measure.Histogram            `bson:"ran"`
	Late  map[string]measure.Histogram `bson:"late"` // of all types together alone, by kind
}

const recordTime = 2 * time.Second

// Record adds to the series what this process has counted in the minute that is over. It costs nothing until then,
// nor where nothing was counted, and no more where much of a process calls it. A last record adds at once what
// was counted up to now.
//
// Charts are no ledger. What a crashed process counted in its last minute is lost. What is known not to be
// written comes with the next record. A write whose answer was lost may count or not; where the server cannot tell
// a repetition, it may count twice. done is that of [measure.Set.Record]: without it, somebody is to record again.
// Index: _id.
func (s *Series) Record(ctx context.Context, last bool) (done bool) {
	now := s.Clock.Now()
	if now.IsZero() { // nothing was done yet
		return true
	}
	return s.Measure.Record(now, last, func(added []measure.Added) []measure.Added {
		if ctx.Err() != nil && !last {
			return added
		}
		// What is cut off may have been written, so it would be lost for the series. A record is short.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(Outside(ctx)), s.Within)
		defer cancel()
		again, err := s.add(ctx, added)
		if len(again) > 0 && len(again) < len(added) { // others made those slots at the same moment
			again, err = s.add(ctx, again)
		}
		if err = explain(err, "adding to the series"); err != nil && len(again) == 0 {
			s.log.Warn().Err(err).Msg("could not add to the series; charts may lack what this process did in a minute")
		}
		return again
	})
}

// add adds to slots, and returns those that are known not to be written.
func (s *Series) add(ctx context.Context, added []measure.Added) ([]measure.Added, error) {
	_, err := s.series.BulkWrite(ctx, collect(added, addition), options.BulkWrite().SetOrdered(false))
	return unwritten(added, err), err
}

// addition is the write of one slot.
func addition(a measure.Added) mongo.WriteModel {
	var inc bson.D
	for what, n := range a.Counts {
		inc = append(inc, d(what, n))
	}
	return mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{d("_id", slotID(a.Resolution, a.Type, a.At))}).SetUpdate(bson.D{
		d("$inc", inc),
		d("$setOnInsert", bson.D{d("type", a.Type), d("at", a.At), d("delete_at", a.At.Add(a.Resolution.Slot+a.Resolution.Kept))}),
	})
}

// unwritten are those that are known not to be written. What the server refuses for good is not among them.
func unwritten(added []measure.Added, err error) (left []measure.Added) {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) {
		if Classify(err) == Retry {
			return added
		}
		return nil
	}
	for _, e := range bulk.WriteErrors {
		// A duplicate is a slot that another process made at the same moment.
		if e.Index < len(added) && (e.Code == duplicateKey || slices.Contains(notBegunCodes, e.Code)) {
			left = append(left, added[e.Index])
		}
	}
	return left
}

// slotID names a slot; the ids of a type sort by time.
func slotID(r measure.Resolution, typ string, at time.Time) string {
	return r.Name + "/" + typ + "/" + at.UTC().Format(slotFormat)
}

const slotFormat = "2006-01-02T15:04Z"

// Of reads the slots of a type that begin in [from, until), in their order; those in which nothing happened do
// not exist. The type "" is all types together. Index: _id.
func (s *Series) Of(ctx context.Context, r measure.Resolution, typ string, from, until time.Time) (slots []SeriesSlot, err error) {
	err = decodeEach(ctx, s.series, "reading the series", bson.D{d("_id", bson.D{d("$gte", slotID(r, typ, from)), d("$lt", slotID(r, typ, until))})}, ofSeries(),
		func(slot *SeriesSlot) { slots = append(slots, *slot) }, func(doc bson.Raw, err error) { s.complain(s.series, doc, err) })
	return slots, err
}

// mostSlots bounds what [Series.Ended] reads.
const mostSlots = 20_000

// Ended reads the slots of each type that begin in [from, until), without those of all types together, and only
// how executions ended. more says that there are others. Index: _id, of which it reads one resolution.
func (s *Series) Ended(ctx context.Context, r measure.Resolution, from, until time.Time) (slots []SeriesSlot, more bool, err error) {
	err = readEach(ctx, s.series, "reading the series", bson.D{
		d("_id", bson.D{d("$gte", r.Name+"/"), d("$lt", r.Name+"0")}), // the character before 0 is the slash
		d("at", bson.D{d("$gte", from), d("$lt", until)}), d("type", bson.D{d("$ne", "")}),
	}, ofSeries().SetProjection(fields("type", "at", "ended")).SetLimit(mostSlots+1), func(doc bson.Raw) bool {
		if more = len(slots) == mostSlots; !more {
			slots = append(slots, endedOf(doc))
		}
		return !more
	})
	return slots, more, err
}

// endedOf decodes a slot of which there may be thousands: by hand, that takes a fifth of the time.
func endedOf(doc bson.Raw) (slot SeriesSlot) {
	slot.Type, _ = doc.Lookup("type").StringValueOK()
	slot.At, _ = doc.Lookup("at").TimeOK()
	ended, _ := doc.Lookup("ended").DocumentOK()
	outcomes, err := ended.Elements()
	if err != nil {
		return slot // nothing has ended
	}
	slot.Ended = make(map[string]int64, len(outcomes))
	for _, e := range outcomes {
		slot.Ended[e.Key()], _ = e.Value().AsInt64OK()
	}
	return slot
}

func ofSeries() *options.FindOptionsBuilder {
	return options.Find().SetSort(fields("_id")).SetHint("_id_").SetBatchSize(mostSlots)
}
