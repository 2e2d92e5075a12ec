package producer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

type mail struct {
	To string `json:"to"`
}

type receipt struct {
	Bytes int `json:"bytes"`
}

var mailType = model.NewType[mail, receipt]("mail")

// bundle is what most tests need: a producer on a database of its own, and a store of
// a "worker" on the same database.
type bundle struct {
	t  *testing.T
	db *mongo.Database
	p  *Producer
	w  *store.Store
}

func setup(t *testing.T, configure ...func(*Config)) *bundle {
	t.Helper()
	c := Config{Database: testdb.New(t)}
	for _, f := range configure {
		f(&c)
	}
	p, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	w, err := store.Open(store.Config{Database: c.Database, Prefix: c.Prefix})
	require.NoError(t, err)
	return &bundle{t: t, db: c.Database, p: p, w: w}
}

func (b *bundle) send(args mail, opts ...Option) Sent {
	b.t.Helper()
	s, err := Send(b.t.Context(), b.p, mailType, args, opts...)
	require.NoError(b.t, err)
	return s
}

func (b *bundle) get(id string) *model.Task {
	b.t.Helper()
	task, err := b.p.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return task
}

// now is the database's time.
func (b *bundle) now() time.Time {
	b.t.Helper()
	require.NoError(b.t, b.w.ReadClock(b.t.Context()))
	return b.w.Clock.Now()
}

// change does to a task what a worker or the time would do.
func (b *bundle) change(id string, rule func(*model.Task, time.Time) (*model.Task, error)) *model.Task {
	b.t.Helper()
	now := b.now()
	_, after, err := b.w.Tasks.Change(b.t.Context(), id, func(t *model.Task) (*model.Task, error) { return rule(t, now) })
	require.NoError(b.t, err)
	return after
}

// claim makes a worker hold the task; the handle names the execution.
func (b *bundle) claim(id, worker string) string {
	b.t.Helper()
	exec := "exec-of-" + worker
	t := b.change(id, func(t *model.Task, now time.Time) (*model.Task, error) {
		if t.DueAt.After(now) { // by the milliseconds in which two estimates of the clock differ
			require.WithinDuration(b.t, now, t.DueAt, time.Second)
			now = t.DueAt
		}
		after, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: worker, ExecID: exec}, lifecycle.ResolveOptions(t.Options), now)
		require.Empty(b.t, no)
		return after, nil
	})
	return t.HandleOf(exec).String()
}

// end ends the worker's execution.
func (b *bundle) end(id, worker string, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	return b.change(id, func(t *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.Finish(t, "exec-of-"+worker, out, lifecycle.ResolveOptions(t.Options), now, 0.5)
	})
}

// run runs the task to its end.
func (b *bundle) run(id string, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	b.claim(id, "w")
	return b.end(id, "w", out)
}

func (b *bundle) park(id, worker string, d time.Duration) {
	b.t.Helper()
	b.change(id, func(t *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.Park(t, "exec-of-"+worker, now.Add(d), lifecycle.Outcome{}, lifecycle.ResolveOptions(t.Options), now)
	})
}

// signalled says how often the workers were told to look at the task.
func (b *bundle) signalled(id string) int {
	b.t.Helper()
	n, err := b.db.Collection("signals").CountDocuments(b.t.Context(), bson.D{{Key: "task_ids", Value: id}})
	require.NoError(b.t, err)
	return int(n)
}

func (b *bundle) tasks() int64 {
	b.t.Helper()
	n, err := b.db.Collection("tasks").CountDocuments(b.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "~"}}}}) // without the sentinel
	require.NoError(b.t, err)
	return n
}

func value(t *testing.T, v any) bson.RawValue {
	t.Helper()
	raw, err := codec.EncodeValue("value", v, input.MaxResultBytes)
	require.NoError(t, err)
	return raw
}
