package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// ChangeOf says what changed.
type ChangeOf string

// What a [ChangeStream] tells of.
const (
	OfTasks   ChangeOf = "tasks"
	OfRuns    ChangeOf = "runs"
	OfFlows   ChangeOf = "flows"
	OfResults ChangeOf = "results"
	OfWorkers ChangeOf = "workers"
)

// Change is a write that people may want to hear of.
type Change struct {
	Of     ChangeOf
	ID     string           // of the document
	Gone   bool             // the document was deleted
	Task   *model.TaskEvent // of tasks
	Result *repeat.Result   // of results
	Token  string           // the place in the stream behind it
}

// ChangeStream tells of changes of tasks, runs, flows and workers, and of results of plans, in the order of the writes.
type ChangeStream struct {
	watched
	colls map[string]ChangeOf
	of    *core
}

// Changes opens one stream over all that people watch, after the place of a token, nil = from now on. The
// caller holds a seat, see [Seats.AcquireSubscription].
//
// It is a stream of the database. A stream of each collection would read the oplog five times, and need
// five seats; their events would have no order, so no token could be a place in all of them.
//
// Writes that nobody sees are left out by the server: pings of tasks, heartbeats in which nothing is new.
// Of all but tasks and results the stream tells only which document changed: its readers want the document as it is.
func (s *Store) Changes(ctx context.Context, token bson.Raw) (*ChangeStream, error) {
	of := func(coll *mongo.Collection, match bson.D) bson.D {
		return append(bson.D{d("ns.coll", coll.Name())}, match...)
	}
	updated := func(fields ...string) bson.D {
		any := bson.A{bson.D{d("operationType", "insert")}, bson.D{d("operationType", "replace")}}
		for _, f := range fields {
			any = append(any, bson.D{d("operationType", "update"), d("updateDescription.updatedFields."+f, exists)})
		}
		return bson.D{d("$or", any)}
	}
	workers := updated("running", "types", "only", "concurrency", "stream", "version")
	workers[0].Value = append(workers[0].Value.(bson.A), bson.D{d("operationType", "delete")})
	match := bson.A{
		of(s.tasks, (&EventFilter{}).match()),
		of(s.runs, updated("rev")),
		of(s.flows, updated("rev")),
		of(s.planResults, bson.D{d("operationType", "insert")}),
		of(s.workers, workers),
	}
	cs, err := watch(ctx, s.durableDatabase(), token,
		bson.D{d("$match", bson.D{d("$or", match)})},
		// What is large and nobody reads here. The token, _id, must stay.
		bson.D{d("$project", bson.D{
			d("fullDocument.args", 0), d("updateDescription.updatedFields.args", 0),
			d("updateDescription.updatedFields.result", 0), d("updateDescription.updatedFields.steps", 0),
			d("fullDocument.nodes", 0), d("fullDocument.states", 0), d("fullDocument.planned", 0), d("updateDescription.updatedFields.planned", 0),
			d("fullDocument.call", 0), d("updateDescription.updatedFields.call", 0),
		})},
	)
	if err != nil {
		return nil, err
	}
	return &ChangeStream{watched: cs, of: s.core, colls: map[string]ChangeOf{
		s.tasks.Name(): OfTasks, s.runs.Name(): OfRuns, s.flows.Name(): OfFlows, s.planResults.Name(): OfResults, s.workers.Name(): OfWorkers,
	}}, nil
}

// Next waits for a change and returns it with the others that have arrived, at most limit; none if there was
// none for [StreamAwait].
func (st *ChangeStream) Next(ctx context.Context, limit int) (out []Change, err error) {
	for {
		if more, err := st.next(ctx); !more {
			return out, err
		}
		c, ok, err := st.decode()
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, c)
		}
		if len(out) >= limit || len(out) > 0 && st.cs.RemainingBatchLength() == 0 {
			return out, nil
		}
	}
}

func (st *ChangeStream) decode() (c Change, ok bool, err error) {
	var doc struct {
		Kind string         `bson:"operationType"`
		At   bson.Timestamp `bson:"clusterTime"`
		In   struct {
			Coll string `bson:"coll"`
		} `bson:"ns"`
		Key struct {
			ID bson.RawValue `bson:"_id"`
		} `bson:"documentKey"`
		Document bson.Raw `bson:"fullDocument"`
		Update   struct {
			Fields bson.Raw `bson:"updatedFields"`
		} `bson:"updateDescription"`
	}
	if err := st.cs.Decode(&doc); err != nil {
		return c, false, explain(err, "reading a change event")
	}
	c = Change{Of: st.colls[doc.In.Coll], Gone: doc.Kind == "delete", Token: TokenText(st.cs.ResumeToken())}
	if c.ID, ok = doc.Key.ID.StringValueOK(); !ok || c.Of == "" {
		return c, false, nil
	}
	switch c.Of {
	case OfTasks:
	case OfResults:
		c.Result = st.of.published(st.cs.Current)
		return c, c.Result != nil, nil
	default:
		return c, true, nil
	}
	e, ok := codec.EventOf(codec.Change{
		TaskID: c.ID, Inserted: doc.Document, Updated: doc.Update.Fields, At: time.Unix(int64(doc.At.T), 0).UTC(),
	})
	c.Task = &e
	return c, ok, nil
}

// ByIDs reads records. Those that this release cannot read are left out, and the log says so. Index: _id.
func (s *Runs) ByIDs(ctx context.Context, ids []string) ([]schedule.Run, error) {
	docs, _, err := readReadable[schedule.Run](ctx, s.core, s.runs, "reading runs", bson.D{d("_id", in(ids))})
	return docs, err
}

// ByIDs reads workers. Those that this release cannot read are left out, and the log says so. Index: _id.
func (s *Workers) ByIDs(ctx context.Context, ids []string) ([]Worker, error) {
	docs, _, err := readReadable[Worker](ctx, s.core, s.workers, "reading workers", bson.D{d("_id", in(ids))})
	return docs, err
}

// Heads reads flows without their graphs and plans. Those that this release cannot read are left out, and
// the log says so. Index: _id.
func (s *Flows) Heads(ctx context.Context, ids []string) ([]*graph.Flow, error) {
	docs, _, err := s.read(ctx, "reading flows", bson.D{d("_id", in(ids))}, options.Find().SetProjection(bson.D{d("nodes", 0), d("planned", 0)}))
	return docs, err
}
