// Package fakeworker does to tasks what a worker does, one step at a time, for tests of the
// doors (producer, admin, pull): claim, end, park, by the rules and the store alone.
package fakeworker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Worker stands for all workers of a database.
type Worker struct {
	Store *store.Store

	t  *testing.T
	db *mongo.Database
}

// New makes a worker on the database.
func New(t *testing.T, db *mongo.Database, prefix string) *Worker {
	t.Helper()
	s, err := store.Open(store.Config{Database: db, Prefix: prefix})
	require.NoError(t, err)
	return &Worker{Store: s, t: t, db: db}
}

// Now is the database's time.
func (b *Worker) Now() time.Time {
	b.t.Helper()
	require.NoError(b.t, b.Store.ReadClock(b.t.Context()))
	return b.Store.Clock.Now()
}

// Change does to a task what a worker or the time would do.
func (b *Worker) Change(id string, rule func(*model.Task, time.Time) (*model.Task, error)) *model.Task {
	b.t.Helper()
	now := b.Now()
	_, after, err := b.Store.Tasks.Change(b.t.Context(), id, func(t *model.Task) (*model.Task, error) { return rule(t, now) })
	require.NoError(b.t, err)
	return after
}

// Claim makes a worker hold the task; the handle names the execution.
func (b *Worker) Claim(id, worker string) string {
	b.t.Helper()
	exec := "exec-of-" + worker
	t := b.Change(id, func(t *model.Task, now time.Time) (*model.Task, error) {
		if t.DueAt.After(now) { // by the milliseconds in which two estimates of the clock differ
			require.WithinDuration(b.t, now, t.DueAt, time.Second)
			now = t.DueAt
		}
		after, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: worker, ExecID: exec}, lifecycle.ResolveOptions(t.Options), now)
		require.Empty(b.t, no)
		return after, nil
	})
	return input.HandleOf(t, exec).String()
}

// End ends the worker's execution.
func (b *Worker) End(id, worker string, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	return b.Change(id, func(t *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.Finish(t, "exec-of-"+worker, out, lifecycle.ResolveOptions(t.Options), now, 0.5)
	})
}

// Run runs the task to its end.
func (b *Worker) Run(id string, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	b.Claim(id, "w")
	return b.End(id, "w", out)
}

// Park parks the worker's execution.
func (b *Worker) Park(id, worker string, d time.Duration) {
	b.t.Helper()
	b.Change(id, func(t *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.Park(t, "exec-of-"+worker, now.Add(d), lifecycle.Outcome{}, lifecycle.ResolveOptions(t.Options), now)
	})
}

// Signalled says how often the workers were told to look at the task.
func (b *Worker) Signalled(id string) int {
	b.t.Helper()
	n, err := b.db.Collection("signals").CountDocuments(b.t.Context(), bson.D{{Key: "task_ids", Value: id}})
	require.NoError(b.t, err)
	return int(n)
}

// Value is v as a task stores it.
func Value(t *testing.T, v any) bson.RawValue {
	t.Helper()
	raw, err := codec.EncodeValue("value", v, input.MaxResultBytes)
	require.NoError(t, err)
	return raw
}

// Tasks is how many tasks are stored.
func (b *Worker) Tasks() int64 {
	b.t.Helper()
	n, err := b.db.Collection("tasks").CountDocuments(b.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "~"}}}}) // without the sentinel
	require.NoError(b.t, err)
	return n
}
