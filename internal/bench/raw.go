package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// rawPrefix names the yardstick's collections, which have the product's indexes.
const rawPrefix = "raw_"

// fullBatch is the most the product claims at once, and so the batch of the yardstick.
const fullBatch = 1000

// yardstick says which writes are measured.
type yardstick struct {
	tasks, writers, batch int
	insert, update        bool // which of them are timed; inserted they are in any case
	each                  bool // each task has a result, and so an end of its own
}

// spent is what a number of tasks cost.
type spent struct {
	tasks     int
	took, cpu time.Duration // cpu: of this process, and so of the server where it is embedded
}

func (s *spent) add(o spent) {
	s.tasks += o.tasks
	s.took += o.took
	s.cpu += o.cpu
}

// rate is how many tasks that is in a second.
func (s *spent) rate() *float64 { return perSecond(s.tasks, s.took) }

// cpuEach is the processor time of a task in microseconds; nil where it is not known.
func (s *spent) cpuEach() *float64 {
	if s.tasks == 0 || s.cpu <= 0 {
		return nil
	}
	return ptr(float64(s.cpu.Microseconds()) / float64(s.tasks))
}

// rawTask is a document of the yardstick before and after its two updates.
type rawTask struct {
	id  string
	doc bson.Raw
}

// raw measures how many tasks a second the server takes without the product: documents
// that are as the product's are inserted in batches, then claimed and finished in batches
// by multi-document updates that are as the product's are, guards included. What is left
// out is everything else: finding, deciding, running, pinging.
func raw(ctx context.Context, db *mongo.Database, y yardstick, argsBytes int, progress func(done, total int)) (spent, error) {
	st, err := store.Open(store.Config{Database: db, Prefix: rawPrefix})
	if err != nil {
		return spent{}, err
	}
	if err := st.Ready(ctx); err != nil {
		return spent{}, fmt.Errorf("setting the raw measurement up: %w", err)
	}
	y.tasks, y.writers, y.batch = max(y.tasks, 1), max(y.writers, 1), max(y.batch, 1)
	w, err := newRawWriter(db, y.each, time.UnixMilli(st.Local().Now().UnixMilli()))
	if err != nil {
		return spent{}, err
	}
	tasks, err := w.tasks(y.tasks, argsBytes)
	if err != nil {
		return spent{}, err
	}
	batch := min(y.batch, (y.tasks+y.writers-1)/y.writers)
	out := spent{tasks: y.tasks}
	for i, step := range []struct {
		timed bool
		do    func(context.Context, []rawTask) error
	}{{y.insert, w.insert}, {y.update, w.claimAndFinish}} {
		if i == 1 && !step.timed {
			break
		}
		began, cpu := st.Local().Monotonic(), cpuTime()
		err := inTurn(ctx, y.tasks, batch, y.writers, func(ctx context.Context, from, to int) error { return step.do(ctx, tasks[from:to]) })
		if err != nil {
			return spent{}, fmt.Errorf("the raw measurement: %w", err)
		}
		if step.timed {
			out.took += st.Local().Monotonic() - began
			out.cpu += cpuTime() - cpu
		}
		progress(i+1, 2)
	}
	return out, dropRaw(ctx, db)
}

// dropRaw drops the yardstick's collections.
func dropRaw(ctx context.Context, db *mongo.Database) error {
	for _, coll := range []string{"tasks", "task_history", "workers", "signals", "control", "permits", "seats", "turns", "meta"} {
		if err := db.Collection(rawPrefix + coll).Drop(ctx); err != nil {
			return fmt.Errorf("cleaning up after the raw measurement: %w", err)
		}
	}
	return nil
}

// rawWriter knows the updates, which are the same for every task: they are taken from the
// product's rules, so that they cannot grow apart.
type rawWriter struct {
	db            *mongo.Database
	now           time.Time
	claim, finish bson.Raw
	results       *rawResults // nil = finish is the same for every task
}

func newRawWriter(db *mongo.Database, each bool, now time.Time) (*rawWriter, error) {
	l, err := newLife(lifecycle.Draft{Type: noop.Name(), Key: "k"}, bson.RawValue{}, now)
	if err != nil {
		return nil, fmt.Errorf("the raw measurement: %w", err)
	}
	w := &rawWriter{db: db, now: now, claim: codec.Diff(l.sent, l.claimed), finish: codec.Diff(l.claimed, l.done)}
	if each {
		w.results = &rawResults{life: l}
	}
	return w, nil
}

// tasks makes documents as the product's are.
func (w *rawWriter) tasks(n, argsBytes int) ([]rawTask, error) {
	a, out := args{Pad: strings.Repeat("x", argsBytes)}, make([]rawTask, n)
	for i := range out {
		var err error
		if out[i], err = w.task(i, a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (w *rawWriter) task(i int, a args) (rawTask, error) {
	encoded, err := codec.EncodeValue("args", a, input.MaxArgsBytes)
	if err != nil {
		return rawTask{}, err
	}
	t := lifecycle.NewTask(lifecycle.Draft{Type: noop.Name(), Key: fmt.Sprintf("raw-%018d", i), Args: encoded}, w.now)
	return rawTask{t.ID, codec.AppendTask(nil, t)}, nil
}

var majority = bson.D{{Key: "w", Value: "majority"}}

func (w *rawWriter) insert(ctx context.Context, batch []rawTask) error {
	docs := make(bson.A, len(batch))
	for i, t := range batch {
		docs[i] = t.doc
	}
	return w.run(ctx, len(batch), bson.D{
		{Key: "insert", Value: rawPrefix + "tasks"}, {Key: "documents", Value: docs}, {Key: "ordered", Value: false},
		{Key: "writeConcern", Value: majority},
	})
}

func (w *rawWriter) claimAndFinish(ctx context.Context, batch []rawTask) error {
	if err := w.update(ctx, batch, 1, w.claim); err != nil {
		return err
	}
	if w.results != nil {
		return w.finishEach(ctx, batch)
	}
	return w.update(ctx, batch, 2, w.finish)
}

// update is one statement for the batch. Index: _id.
func (w *rawWriter) update(ctx context.Context, batch []rawTask, rev int64, u bson.Raw) error {
	at, ids := bsoncore.AppendArrayStart(nil)
	for i, t := range batch {
		ids = bsoncore.AppendStringElement(ids, strconv.Itoa(i), t.id)
	}
	ids, _ = bsoncore.AppendArrayEnd(ids, at)
	return w.run(ctx, len(batch), bson.D{
		{Key: "update", Value: rawPrefix + "tasks"},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{
				{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.RawValue{Type: bson.TypeArray, Value: ids}}}},
				{Key: "rev", Value: rev}, {Key: "generation", Value: bson.D{{Key: "$lte", Value: w.now.UnixMilli()}}},
			}},
			{Key: "u", Value: u}, {Key: "multi", Value: true},
		}}},
		{Key: "ordered", Value: false}, {Key: "writeConcern", Value: majority},
	})
}

func (w *rawWriter) run(ctx context.Context, n int, cmd bson.D) error {
	var reply struct {
		N int `bson:"n"`
	}
	if err := w.db.RunCommand(ctx, cmd).Decode(&reply); err != nil {
		return err
	}
	if reply.N != n {
		return fmt.Errorf("%s of %d tasks wrote %d", cmd[0].Key, n, reply.N)
	}
	return nil
}

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
