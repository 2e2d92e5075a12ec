package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Stream watches for tasks that became due sooner than anybody knew: inserts, and
// writes of wake_at. Claims, pings and ends wake nobody. It is a hint: losing every
// event costs latency, never work.
type Stream struct{ watched }

// Woken is one event: the task as it was inserted, or only the id of one that changed.
type Woken struct {
	ID   string
	Task *model.Task // nil for a change: read it
}

// Watch opens a stream over inserts of the given types that meet the conditions (nil =
// all), and over wake-ups of any; those of other types the caller tells by the id. The
// caller holds a permit.
func (s *core) Watch(ctx context.Context, types []string, conditions *lifecycle.Conditions) (*Stream, error) {
	wanted := bson.A{bson.D{d("operationType", "update"), d("updateDescription.updatedFields.wake_at", bson.D{d("$exists", true)})}}
	of := map[*lifecycle.Conditions][]string{}
	for _, typ := range types {
		of[lifecycle.ConditionsFor(conditions, typ)] = append(of[lifecycle.ConditionsFor(conditions, typ)], typ)
	}
	for conditions, types := range of {
		inserts := bson.D{d("operationType", "insert"), d("fullDocument.type", in(types))}
		for _, e := range only(nil, conditions) {
			inserts = append(inserts, d("fullDocument."+e.Key, e.Value))
		}
		wanted = append(wanted, inserts)
	}
	match := bson.D{d("$match", bson.D{d("$or", wanted)})}
	cs, err := watch(ctx, s.durable(s.tasks), nil, match)
	if err != nil {
		return nil, err
	}
	return &Stream{cs}, nil
}

// noTimeout is longer than any stream lives, and short enough for the driver to take the
// server's wait from [StreamAwait] and not from it: it counts in int32 milliseconds.
const noTimeout = 20 * 24 * time.Hour

// Next waits for an event and returns it with all others that have arrived, at most max.
func (st *Stream) Next(ctx context.Context, limit int) ([]Woken, error) {
	// A timeout of the caller's client is for operations that end; without a deadline of
	// its own a stream would die of it whenever nothing happens for so long.
	ctx, cancel := context.WithTimeout(ctx, noTimeout)
	defer cancel()
	if !st.cs.Next(ctx) {
		if err := st.cs.Err(); err != nil {
			return nil, explain(err, "waiting for the change stream")
		}
		return nil, ErrStreamEnded
	}
	var out []Woken
	for {
		w, err := st.decode()
		if err != nil {
			return nil, err
		}
		if w.ID != "" {
			out = append(out, w)
		}
		if len(out) >= limit || st.cs.RemainingBatchLength() == 0 || !st.cs.Next(ctx) {
			return out, nil
		}
	}
}

func (st *Stream) decode() (Woken, error) {
	var event struct {
		Key struct {
			ID string `bson:"_id"`
		} `bson:"documentKey"`
		Document *model.Task `bson:"fullDocument"`
	}
	if err := codec.Decode(st.cs.Current, &event); err != nil {
		return Woken{}, explain(err, "reading a change event")
	}
	return Woken{ID: event.Key.ID, Task: event.Document}, nil
}
