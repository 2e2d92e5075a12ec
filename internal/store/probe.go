package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Queries of an operator who looks whether all is well (mscheduler doctor).

// ProbeWrite tries what a worker needs to be allowed: to make a collection with an
// index, write, read and drop. It does so on a collection of its own, prefix
// "doctor_probe", which it leaves behind only when the drop is refused. The index comes first:
// that of an empty collection waits for no other member of the replica set. Another doctor may drop the collection
// meanwhile, so what fails is tried once more.
func (s *Tasks) ProbeWrite(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	coll := s.db.Collection(s.prefix + "doctor_probe")
	var err error
	for range 2 {
		if err = s.createIndexes(ctx, coll, mongo.IndexModel{Keys: fields("at")}); err != nil {
			err = explain(err, "creating an index")
		} else {
			err = s.probeDocument(ctx, coll)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	return errors.Join(err, explain(coll.Drop(call), "dropping a collection"))
}

func (s *Tasks) probeDocument(ctx context.Context, coll *mongo.Collection) error {
	id := bson.D{d("_id", bson.NewObjectID())}
	if _, err := coll.InsertOne(ctx, id); err != nil {
		return explain(err, "writing a document")
	}
	return explain(coll.FindOne(ctx, id).Err(), "reading back a write")
}

// probeTime bounds the probes of ProbeWrite together, and then the drop.
const probeTime = 20 * time.Second

// ProbeRead tries to read tasks, also as a majority has them, which a server may refuse
// (enableMajorityReadConcern: false, up to MongoDB 4.4). Index: _id.
func (s *Tasks) ProbeRead(ctx context.Context) error {
	if _, err := finds(ctx, s.tasks, "reading tasks", bson.D{}, options.FindOne().SetSort(fields("_id"))); err != nil {
		return err
	}
	_, err := finds(ctx, s.durable(s.tasks), "reading with read concern majority, which mscheduler requires",
		bson.D{}, options.FindOne().SetSort(fields("_id")))
	return err
}

// ProbeWatch tries to open a change stream over the tasks.
func (s *Tasks) ProbeWatch(ctx context.Context) error {
	st, err := s.Watch(ctx, []string{"doctor"}, nil)
	if err != nil {
		return err
	}
	return explain(st.Close(ctx), "closing a change stream")
}

// DueType is a type that has tasks which may be claimed now.
type DueType struct {
	Type   string
	Oldest time.Time // the due_at that lies furthest back, of tasks that name no worker
}

// DueTypes lists the types with tasks due at the given time, by a loose scan. Index:
// due, with audience and priority as points, so that each type costs a few keys.
func (s *Tasks) DueTypes(ctx context.Context, now time.Time) ([]DueType, error) {
	types, err := s.TypesWithTasks(ctx)
	if err != nil {
		return nil, err
	}
	var out []DueType
	for _, typ := range types {
		doc, there, err := readOne[Next](ctx, s.tasks, "finding the oldest due task of type "+typ, dueOfType(typ, now),
			options.FindOne().SetSort(fields("due_at")).SetHint(IndexDue).SetProjection(bson.D{d("_id", 0), d("due_at", 1)}))
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, DueType{Type: typ, Oldest: doc.DueAt})
		}
	}
	return out, nil
}

// mostWaiting is how many waiting tasks [Tasks.DueOutside] and [Tasks.NotUnderstood] look at.
const mostWaiting = 10_000

// DueOutside finds the task of the type that is due the longest among those that meet none of the
// conditions; "" = there is none. It looks at the 10,000 that are due the longest. Index: due, and it reads the documents.
func (s *Tasks) DueOutside(ctx context.Context, typ string, conditions []*lifecycle.Conditions, now time.Time) (id string, err error) {
	met := collect(conditions, func(c *lifecycle.Conditions) bson.D { return only(bson.D{}, c) })
	doing := "finding a due task of type " + typ + " that meets no worker's conditions"
	found, err := aggregated[named](ctx, s.tasks, doing, mongo.Pipeline{
		{d("$match", dueOfType(typ, now))}, {d("$sort", fields("due_at"))}, {d("$limit", mostWaiting)},
		{d("$match", bson.D{d("$nor", met)})}, {d("$limit", 1)}, {d("$project", fields("_id"))},
	}, options.Aggregate().SetHint(IndexDue))
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0].ID, nil
}

// NotUnderstood reads, for each waiting task of the type that no worker has understood, why the last one did not.
// It looks at the first 10,000 waiting tasks of the type. Index: due.
func (s *Tasks) NotUnderstood(ctx context.Context, typ string) (reasons []string, err error) {
	doing := "finding tasks of type " + typ + " that no worker understands"
	type states struct {
		States []model.WorkerState `bson:"worker_states"`
	}
	docs, err := aggregated[states](ctx, s.tasks, doing, mongo.Pipeline{
		{d("$match", bson.D{d("type", typ), d("due_at", sinceEver)})}, {d("$limit", mostWaiting)},
		{d("$match", bson.D{d("undecodable_since", sinceEver)})},
		{d("$project", fields("worker_states.fail_kind", "worker_states.fail_reason"))},
	}, options.Aggregate().SetHint(IndexDue))
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		for _, w := range slices.Backward(doc.States) {
			if w.FailKind == failkind.Undecodable {
				reasons = append(reasons, w.FailReason)
				break
			}
		}
	}
	return reasons, nil
}

// dueOfType is the filter for all due tasks of a type that name no worker.
func dueOfType(typ string, now time.Time) bson.D {
	return bson.D{
		d("type", typ), d("audience", in([]string{lifecycle.AudienceAll, lifecycle.AudienceMany})),
		d("priority", in(allPriorities())), d("due_at", bson.D{d("$lte", now)}),
	}
}

// LapsedBefore finds some tasks whose lease lapsed before the given time, the longest lapsed first. It reads their ids and
// the times of the lapses. Index: lapse. It reads all keys of that index, one for each open execution.
func (s *Tasks) LapsedBefore(ctx context.Context, at time.Time, limit int) ([]*model.Task, error) {
	return s.findReadable(ctx, fmt.Sprintf("finding leases that lapsed before %s", at.UTC().Format(clock.Format)),
		bson.D{d("lapse_at", bson.D{d("$lte", at)}), present},
		options.Find().SetSort(bson.D{d("lapse_at", 1)}).SetHint(IndexLapse).SetLimit(int64(limit)).SetProjection(fields("lapse_at")), nil)
}
