package store_test

import (
	"fmt"
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

// A primary has carried one of several commands out when it steps down, and refuses the others.
func TestWhatBecameOfACallIsOpenIfOneOfItsCommandsWasCarriedOut(t *testing.T) {
	const each, notPrimary = 250, 10107 // as many as go out in one command if there are more
	p := testdb.BehindPatient(t)
	s, direct := openAs(t, options.Client().ApplyURI(p.URI()))
	var runs []*schedule.Run
	for i := range 2 * each {
		runs = append(runs, &schedule.Run{ID: fmt.Sprint("r@", i), RuleID: "r", Status: schedule.RunSuccess, Rev: 1})
	}
	p.Set(proxy.Rule{Command: "update", Collection: "periodic_runs", Do: proxy.Pass})
	p.Set(proxy.Rule{Command: "update", Collection: "periodic_runs", Do: proxy.Refuse, Code: notPrimary, Times: -1})
	_, err := s.Runs.Put(t.Context(), runs)
	require.True(t, store.Outage(err))
	require.Equal(t, store.Ambiguous, store.Classify(err), "%v", err)
	n, err := direct.Collection("periodic_runs").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, each, n)

	_, err = s.Runs.Put(t.Context(), runs)
	require.Equal(t, store.Retry, store.Classify(err), "now none is carried out: %v", err)
}

// Behind a router the statements of one command may have answers of several shards.
func TestWhatBecameOfACommandIsOpenIfOneOfItsShardsCarriedItOut(t *testing.T) {
	const notPrimary = 10107
	a := newAnswered(t)
	a.proxy.Patient()
	meant := func(key string) bool { return key == "1" }
	a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
		if request.Index(0).Key() != "update" {
			return answer
		}
		return failedEach(notPrimary, request, answer, meant)
	})
	claims := a.claims(t, 2)
	_, err := a.Tasks.Writes(t.Context(), claims, 0)
	require.Equal(t, store.Ambiguous, store.Classify(err), "%v", err)
	meant = all
	_, err = a.Tasks.Writes(t.Context(), claims, 0)
	require.Equal(t, store.Retry, store.Classify(err), "%v", err)
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
