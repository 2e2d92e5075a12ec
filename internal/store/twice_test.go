package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// The first try reached a server that then went away, and the second one found no primary.
func TestWhatBecameOfAFirstTryIsStillOpenAfterASecondThatReachedNobody(t *testing.T) {
	p := testdb.Behind(t)
	s, direct := openAs(t, options.Client().ApplyURI(p.URI()).SetRetryWrites(false))
	const notPrimary = 10107
	p.Set(proxy.Rule{Command: "update", Collection: "periodic_runs", Do: proxy.CutAfter})
	p.Set(proxy.Rule{Command: "update", Collection: "periodic_runs", Do: proxy.Refuse, Code: notPrimary, Times: -1})
	_, err := s.Runs.Put(t.Context(), []*schedule.Run{{ID: "r@1", RuleID: "r", Status: schedule.RunSuccess, Rev: 1}})
	require.Equal(t, store.Ambiguous, store.Classify(err), "%v", err)
	n, err := direct.Collection("periodic_runs").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// A run that starts and ends before its start is carried out has two records in one call.
func TestTwoRecordsOfARunInOneCallAreBothStored(t *testing.T) {
	s := permitted(t)
	held, err := s.Runs.Put(t.Context(), []*schedule.Run{
		{ID: "r@1", RuleID: "r", Status: schedule.RunScheduled, Rev: 1},
		{ID: "r@1", RuleID: "r", Status: schedule.RunSuccess, Rev: 2},
	})
	require.NoError(t, err)
	require.Empty(t, held)
	run, err := s.Runs.Get(t.Context(), "r@1")
	require.NoError(t, err)
	require.Equal(t, schedule.RunSuccess, run.Status)
}
