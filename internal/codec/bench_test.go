package codec

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// batch is what a worker reads and writes at once: tasks of one type, with an execution each.
func batch(tb testing.TB) (tasks []*model.Task, docs []bson.Raw) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 200 {
		args, err := EncodeValue("args", map[string]any{"order": i, "to": "ann@example.org"}, input.MaxArgsBytes)
		require.NoError(tb, err)
		key := fmt.Sprintf("order-%d", i)
		t := &model.Task{
			ID: "-/mail/" + key, Type: "mail", Key: key, Generation: 1, Rev: 2, Status: model.StatusExecuting, Priority: 5, Args: args,
			Audience: []string{"*"}, CreatedAt: at, UpdatedAt: at, StartTime: at, LapseAt: at.Add(time.Minute),
			Options: model.Options{Retention: time.Hour, Retry: &model.Retry{Strategy: "fixed", Interval: time.Minute, MaxErrors: new(3)}},
			WorkerStates: []model.WorkerState{{
				WorkerID: "host-1-00000000", ExecID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), ClaimedAt: at, PingExpireTime: at.Add(time.Minute), Attempt: 1,
			}},
		}
		tasks, docs = append(tasks, t), append(docs, AppendTask(nil, t))
	}
	return tasks, docs
}

func BenchmarkReadABatch(b *testing.B) {
	_, docs := batch(b)
	b.ReportAllocs()
	for b.Loop() {
		var r TaskReader
		for _, doc := range docs {
			if _, err := r.Read(doc); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkWriteABatch(b *testing.B) {
	tasks, _ := batch(b)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range tasks {
			dst = AppendTask(dst[:0], t)
		}
	}
}
