package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// life is a task as it is sent, claimed and finished, all at one time.
type life struct {
	sent, claimed, done *model.Task
	eff                 lifecycle.Effective
	at                  time.Time
}

func newLife(d lifecycle.Draft, result bson.RawValue, at time.Time) (l *life, err error) {
	l = &life{sent: lifecycle.NewTask(d, at), at: at}
	l.eff = lifecycle.ResolveOptions(l.sent.Options)
	by := lifecycle.Claimant{WorkerID: "bench-0-00000000", ExecID: "00000000-0000-4000-8000-000000000000"}
	var no lifecycle.Refusal
	if l.claimed, no = lifecycle.Claim(l.sent, by, l.eff, at); no != "" {
		return nil, fmt.Errorf("a fresh task is not claimable: %s", no)
	}
	l.done, err = l.finish(result)
	return l, err
}

// finish is the claimed task with another result.
func (l *life) finish(result bson.RawValue) (*model.Task, error) {
	return lifecycle.Finish(l.claimed, l.claimed.WorkerStates[0].ExecID, lifecycle.Success(result), l.eff, l.at, 0)
}

// rawResults makes ends that differ from task to task.
type rawResults struct {
	*life
	last atomic.Int64
}

// end is the update that finishes a task with a result that no other task has.
func (x *rawResults) end() (bson.Raw, error) {
	result, err := codec.EncodeValue("result", x.last.Add(1), input.MaxResultBytes)
	if err != nil {
		return nil, err
	}
	finished, err := x.finish(result)
	if err != nil {
		return nil, fmt.Errorf("the raw measurement: %w", err)
	}
	return codec.Diff(x.claimed, finished), nil
}

// finishEach is one command with a statement for each task. Index: _id.
func (w *rawWriter) finishEach(ctx context.Context, batch []rawTask) error {
	upTo := bsoncore.BuildDocument(nil, bsoncore.AppendInt64Element(nil, "$lte", w.now.UnixMilli()))
	at, updates := bsoncore.AppendArrayStart(nil)
	for i, t := range batch {
		u, err := w.results.end()
		if err != nil {
			return err
		}
		var st, q int32
		st, updates = bsoncore.AppendDocumentElementStart(updates, strconv.Itoa(i))
		q, updates = bsoncore.AppendDocumentElementStart(updates, "q")
		updates = bsoncore.AppendStringElement(updates, "_id", t.id)
		updates = bsoncore.AppendInt64Element(updates, "rev", 2)
		updates = bsoncore.AppendDocumentElement(updates, "generation", upTo)
		updates, _ = bsoncore.AppendDocumentEnd(updates, q)
		updates = bsoncore.AppendDocumentElement(updates, "u", bsoncore.Document(u))
		updates, _ = bsoncore.AppendDocumentEnd(updates, st)
	}
	updates, _ = bsoncore.AppendArrayEnd(updates, at)
	return w.run(ctx, len(batch), bson.D{
		{Key: "update", Value: rawPrefix + "tasks"},
		{Key: "updates", Value: bson.RawValue{Type: bson.TypeArray, Value: updates}},
		{Key: "ordered", Value: false}, {Key: "writeConcern", Value: majority},
	})
}
