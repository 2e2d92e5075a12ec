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
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestAHeldRecordKeepsBackItsOwnRule(t *testing.T) {
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, p.ready(t.Context()))
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
