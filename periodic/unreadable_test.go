package periodic_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// A worker's and a type's document that nobody can read: the engine starts and decides, but
// for the ticks of that type, of which is not known what it says to its tasks.
func TestADocumentThatCannotBeReadStopsNoOtherTypesTicks(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	for _, typ := range []string{"bad", "good"} {
		r, err := p.Create(t.Context(), schedule.Spec{Name: typ, Cron: "* * * * * *", Type: typ})
		require.NoError(t, err)
		_, err = p.Enable(t.Context(), r.ID, 0)
		require.NoError(t, err)
	}
	_, err = db.Collection("task_types").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "bad"}, {Key: "max_running", Value: "three"}})
	require.NoError(t, err)
	_, err = db.Collection("workers").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "bad"}, {Key: "types", Value: 3}, {Key: "heartbeat_at", Value: time.Now()}})
	require.NoError(t, err)
	p, err = periodic.New(periodic.Config{Database: db}) // one that has not read the types before
	require.NoError(t, err)
	engine(t, p.Run)
	tasks := func(typ string) int64 {
		n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "type", Value: typ}})
		require.NoError(t, err)
		return n
	}
	require.Eventually(t, func() bool { return tasks("good") >= 2 }, testdb.Patience, 50*time.Millisecond)
	require.Zero(t, tasks("bad"))

	prod, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	require.NoError(t, admin.New(prod).DeleteType(t.Context(), "bad", 0))
	require.Eventually(t, func() bool { return tasks("bad") > 0 }, testdb.Patience, 50*time.Millisecond, "its ticks have waited")
}

func TestATaskThatCannotBeReadKeepsNoOtherRunsEndBack(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, tickType, func(context.Context, *consumer.Task[map[string]any]) (model.None, error) {
		return model.None{}, nil
	}))
	engine(t, c.Run)
	var ids []string
	for _, name := range []string{"bad", "good"} {
		r, err := p.Create(t.Context(), schedule.Spec{Name: name, Cron: "@yearly", Type: "tick"})
		require.NoError(t, err)
		run, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
		require.NoError(t, err)
		ids = append(ids, r.ID)
		require.Eventually(t, func() bool {
			n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: model.TaskID("", "tick", run)}, {Key: "status", Value: model.StatusSuccess}})
			return err == nil && n == 1
		}, testdb.Patience, 10*time.Millisecond)
	}
	_, err = db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "origin.id", Value: ids[0]}}, bson.D{{Key: "$set", Value: bson.D{{Key: "finished_at", Value: "three"}}}})
	require.NoError(t, err)
	engine(t, p.Run)
	idle(t, p, ids[1])
	r, err := p.Get(t.Context(), ids[0])
	require.NoError(t, err)
	require.Len(t, r.Active, 1, "what became of it cannot be read")
}
