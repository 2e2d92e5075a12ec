package periodic

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestAHeldRecordKeepsBackItsOwnRule(t *testing.T) {
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, p.store.Prepare(t.Context()))
	rule := func(id string, rev int64) *schedule.Rule {
		return &schedule.Rule{ID: id, Planned: []schedule.Planned{{ID: "1", Record: &schedule.Run{ID: id + "@1", RuleID: id, Status: schedule.RunSuccess, Rev: rev}}}}
	}
	finish := func(rev int64) map[string]error {
		held, err := planner{p}.Finish(t.Context(), []*schedule.Rule{rule("a", rev), rule("b", rev)}, nil)
		require.NoError(t, err)
		return held
	}
	require.Empty(t, finish(1))
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = db.Collection("periodic_runs").UpdateByID(mongo.NewSessionContext(t.Context(), session), "a@1", bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a short time limit may find the machine slow
		held := finish(2)
		require.ErrorIs(t, held["a"], store.ErrHeld)
		return len(held) == 1
	}, testdb.Patience, time.Millisecond)
	b, err := p.store.Runs.Get(t.Context(), "b@1")
	require.NoError(t, err)
	require.EqualValues(t, 2, b.Rev)
}

// A decision to run may be carried out later than it was answered.
func TestARunIsReadBeforeItsRecordIsStored(t *testing.T) {
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	for _, c := range []struct {
		name        string
		concurrency schedule.ConcurrencyPolicy
		log         schedule.RunLog
		before      int // runs
		status      schedule.RunStatus
		reason      string
	}{
		{name: "starts", status: schedule.RunScheduled},
		{name: "starts without a record", log: schedule.LogNone, status: schedule.RunScheduled},
		{name: "waits", before: 1, status: schedule.RunQueued},
		{name: "waits without a record", log: schedule.LogNone, before: 1, status: schedule.RunQueued},
		{name: "is skipped", concurrency: schedule.ConcurrencySkip, before: 1, status: schedule.RunSkipped, reason: tickplan.SkipConcurrency},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := p.Create(t.Context(), schedule.Spec{
				Name: c.name, Cron: "@yearly", Type: "tick", MaxConcurrency: 1, Concurrency: c.concurrency, Log: c.log,
			})
			require.NoError(t, err)
			for range c.before {
				_, err := p.Trigger(t.Context(), r.ID, TriggerOptions{})
				require.NoError(t, err)
			}
			require.NoError(t, session.StartTransaction())
			_, err = db.Collection("periodic_runs").InsertOne(mongo.NewSessionContext(t.Context(), session), bson.D{{Key: "_id", Value: r.ID + "!mine"}})
			require.NoError(t, err)
			id, err := p.Trigger(t.Context(), r.ID, TriggerOptions{Request: "mine"})
			require.NoError(t, err)
			stored, err := p.store.Runs.Get(t.Context(), id)
			require.NoError(t, err)
			require.Nil(t, stored, "another client holds it")
			run, err := p.GetRun(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, c.status, run.Status)
			require.Equal(t, c.reason, run.Reason)
			require.Equal(t, c.status == schedule.RunScheduled, run.TaskID != "")
			require.Equal(t, []string{id, r.ID, r.Name}, []string{run.ID, run.RuleID, run.RuleName})
			require.NoError(t, session.AbortTransaction(t.Context()))
		})
	}
}
