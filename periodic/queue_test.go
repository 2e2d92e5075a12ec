package periodic_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// An engine looks quickly while runs wait for ends: it knows from the database, since another may
// have decided that they do.
func TestEveryProcessSeesThatRunsWait(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	other, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	waits := func() bool {
		wait := false
		require.NoError(t, other.Ask(t.Context(), "looking", other.Rules.WaitingQuestion(func() { wait = true })))
		return wait
	}
	r, err := p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "@yearly", Type: "tick", MaxConcurrency: 1})
	require.NoError(t, err)
	trigger := func() string {
		run, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
		require.NoError(t, err)
		return run
	}
	trigger()
	require.False(t, waits(), "one runs, and none waits")
	second := trigger()
	require.True(t, waits())
	r, err = p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	since := r.QueuedAt
	third := trigger()
	require.NoError(t, p.Cancel(t.Context(), second))
	require.True(t, waits(), "there is another")
	r, err = p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Equal(t, since, r.QueuedAt, "they have waited without a break")
	_, err = p.Update(t.Context(), r.ID, r.Version, periodic.SpecOf(r))
	require.NoError(t, err)
	require.True(t, waits(), "an edit starts none")
	require.NoError(t, p.Cancel(t.Context(), third))
	require.False(t, waits())

	// What looks each second reads one key of the index, however many rules there are.
	var plan struct {
		QueryPlanner struct {
			WinningPlan bson.Raw `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	require.NoError(t, db.RunCommand(t.Context(), bson.D{
		{Key: "explain", Value: bson.D{
			{Key: "find", Value: "periodic_rules"}, {Key: "filter", Value: bson.D{{Key: "queued_at", Value: bson.D{{Key: "$exists", Value: true}}}}},
			{Key: "hint", Value: store.IndexQueue}, {Key: "limit", Value: 1},
		}},
		{Key: "verbosity", Value: "queryPlanner"},
	}).Decode(&plan))
	require.Contains(t, plan.QueryPlanner.WinningPlan.String(), `"indexName": "`+store.IndexQueue+`"`)
}
