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

// rawResults makes ends that differ from task to task.
type rawResults struct {
	claimed *model.Task
	execID  string
	eff     lifecycle.Effective
	now     time.Time
	last    atomic.Int64
}

// end is the update that finishes a task with a result that no other task has.
func (x *rawResults) end() (bson.Raw, error) {
	result, err := codec.EncodeValue("result", x.last.Add(1), input.MaxResultBytes)
	if err != nil {
		return nil, err
	}
	finished, err := lifecycle.Finish(x.claimed, x.execID, lifecycle.Success(result), x.eff, x.now, 0)
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
