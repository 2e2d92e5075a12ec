package periodic_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// behind is a Periodic that reaches its database through a proxy, with a rule.
func behind(t *testing.T, c clock.Clock) (px *proxy.Proxy, db *mongo.Database, p *periodic.Periodic, r *schedule.Rule) {
	db = testdb.New(t)
	px = testdb.Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(px.URI()).SetRetryWrites(false).SetRetryReads(false))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	p, err = periodic.New(periodic.Config{Database: client.Database(db.Name()), Clock: c})
	require.NoError(t, err)
	r, err = p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "@yearly", Type: "tick"})
	require.NoError(t, err)
	return px, db, p, r
}

func count(t *testing.T, db *mongo.Database, coll string) int {
	n, err := db.Collection(coll).CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "~"}}}}) // without the sentinel of the tasks
	require.NoError(t, err)
	return int(n)
}

// A stop in the middle of a decision: what is written is carried out before the engine goes.
func TestAnEngineThatStopsCarriesOutWhatItHasDecided(t *testing.T) {
	px, db, p, r := behind(t, nil)
	set(t, db, r.ID, bson.D{{Key: "cron", Value: "* * * * * *"}})
	_, err := p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	at := time.Now().Truncate(time.Second)
	set(t, db, r.ID, bson.D{{Key: "decided_to", Value: at.Add(-time.Second)}, {Key: "next_fire_at", Value: at}})
	decides := px.Set(proxy.Rule{Command: "update", Collection: "periodic_rules", Do: proxy.HoldAfter})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(ctx) }()
	testdb.Receive(t, decides.Hit())
	stop()
	decides.Release()
	require.NoError(t, testdb.Receive(t, stopped))
	r, err = p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.NotEmpty(t, r.Active)
	require.Empty(t, r.Planned, "nothing is left to others")
	require.Equal(t, len(r.Active), count(t, db, "tasks"))
	require.Equal(t, len(r.Active), count(t, db, "periodic_runs"))
}

func TestADecisionWhoseAnswerIsLostIsCarriedOutAtOnce(t *testing.T) {
	t.Parallel()
	px, db, p, r := behind(t, nil)
	lost := px.Set(proxy.Rule{Command: "update", Collection: "periodic_rules", Do: proxy.CutAfter})
	_, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, lost.Sprung())
	r, err = p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Len(t, r.Active, 1)
	require.Empty(t, r.Planned)
	require.Equal(t, 1, count(t, db, "tasks"))
}

func TestADecisionThatIsLostOnItsWayIsAnError(t *testing.T) {
	t.Parallel()
	px, db, p, r := behind(t, nil)
	px.Set(proxy.Rule{Command: "update", Collection: "periodic_rules", Do: proxy.CutBefore, Times: 2}) // it is tried twice
	_, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
	require.Error(t, err)
	require.Zero(t, count(t, db, "tasks"))
}

// standing is a clock that a test moves on: the process stood still, or its machine slept.
type standing struct {
	clock.Clock
	off atomic.Int64
}

func (s *standing) Now() time.Time { return s.Clock.Now().Add(time.Duration(s.off.Load())) }
func (s *standing) Monotonic() time.Duration {
	return s.Clock.Monotonic() + time.Duration(s.off.Load())
}

// While a process stood still, others may have carried out what it decided, and all of it may
// be over and deleted since. To do it once more would run the tick twice.
func TestAProcessThatStoodStillSendsNothingThatOthersCarriedOut(t *testing.T) {
	for name, c := range map[string]struct {
		still time.Duration
		tasks int
	}{"for two minutes": {2 * time.Minute, 0}, "hardly": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			at := &standing{Clock: clock.System()}
			px, db, p, r := behind(t, at)
			decided := px.Set(proxy.Rule{Command: "update", Collection: "periodic_rules", Do: proxy.HoldAfter})
			done := make(chan error, 1)
			go func() {
				_, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
				done <- err
			}()
			testdb.Receive(t, decided.Hit())
			_, err := db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$unset", Value: bson.D{{Key: "planned", Value: ""}, {Key: "planned_at", Value: ""}}}})
			require.NoError(t, err)
			at.off.Store(int64(c.still))
			decided.Release()
			require.NoError(t, testdb.Receive(t, done))
			require.Equal(t, c.tasks, count(t, db, "tasks"))
			require.Equal(t, c.tasks, count(t, db, "periodic_runs"))
		})
	}
}

// Something may keep a decision planned for longer than its tasks are kept after their ends. They ran once.
func TestATaskThatHasMovedToTheHistoryIsNotSentAgain(t *testing.T) {
	px, db, p, r := behind(t, clock.System())
	sent := px.Set(proxy.Rule{Command: "insert", Collection: "tasks", Do: proxy.HoldAfter})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Trigger(ctx, r.ID, periodic.TriggerOptions{})
		done <- err
	}()
	testdb.Receive(t, sent.Hit())
	records := px.Set(proxy.Rule{Collection: "periodic_runs", Do: proxy.CutBefore, Times: -1})
	sent.Release()
	_ = testdb.Receive(t, done) // nobody has written the record
	cancel()
	var task bson.M
	require.NoError(t, db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "type", Value: "tick"}}).Decode(&task))
	id := task["_id"]
	task["_id"], task["task_id"], task["archived_at"] = fmt.Sprintf("%s@%d", id, task["generation"]), id, time.Now()
	_, err := db.Collection("task_history").InsertOne(t.Context(), task)
	require.NoError(t, err)
	_, err = db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: id}})
	require.NoError(t, err)
	require.Positive(t, records.Sprung())

	px.Clear()
	set(t, db, r.ID, bson.D{{Key: "planned_at", Value: time.Now().Add(-time.Minute)}})
	engine(t, p.Run)
	require.Eventually(t, func() bool { return count(t, db, "periodic_runs") == 1 }, testdb.Patience, 20*time.Millisecond)
	require.Zero(t, count(t, db, "tasks"))
}

// The same after the tasks are sent: a record would come back that was deleted long ago.
func TestAProcessThatStoodStillAfterItsSendsLeavesTheRecordsToOthers(t *testing.T) {
	at := &standing{Clock: clock.System()}
	px, db, p, r := behind(t, at)
	sent := px.Set(proxy.Rule{Command: "insert", Collection: "tasks", Do: proxy.HoldAfter})
	done := make(chan error, 1)
	go func() {
		_, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
		done <- err
	}()
	testdb.Receive(t, sent.Hit())
	at.off.Store(int64(2 * time.Minute))
	sent.Release()
	require.NoError(t, testdb.Receive(t, done))
	require.Equal(t, 1, count(t, db, "tasks"))
	require.Zero(t, count(t, db, "periodic_runs"))
	r, err := p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.NotEmpty(t, r.Planned, "whoever looks next carries it out")

	at.off.Store(0)
	set(t, db, r.ID, bson.D{{Key: "planned_at", Value: time.Now().Add(-time.Minute)}})
	engine(t, p.Run)
	require.Eventually(t, func() bool { return count(t, db, "periodic_runs") == 1 }, testdb.Patience, 20*time.Millisecond)
}
