package periodic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Three engines share rules that fire each second, and one of them goes in between.
func TestSeveralEnginesGiveEveryTickOneRecordAndOneTask(t *testing.T) {
	t.Parallel() // it mostly waits
	db := testdb.New(t)
	gone, leave := context.WithCancel(t.Context())
	defer leave()
	var p *periodic.Periodic
	for n := range 3 {
		var err error
		p, err = periodic.New(periodic.Config{Database: db})
		require.NoError(t, err)
		run := p.Run
		if n == 0 {
			first := p
			run = func(context.Context) error { return first.Run(gone) }
		}
		engine(t, run)
	}
	const rules = 20
	var ids []string
	for n := range rules {
		r, err := p.Create(t.Context(), schedule.Spec{
			Name: fmt.Sprint(n), Cron: "* * * * * *", Type: "tick", CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull, Cap: 1000},
		})
		require.NoError(t, err)
		_, err = p.Enable(t.Context(), r.ID, 0)
		require.NoError(t, err)
		ids = append(ids, r.ID)
	}
	records := func(id string) []*schedule.Run {
		runs, err := p.Runs(t.Context(), id, periodic.RunFilter{}, nil, 1000)
		require.NoError(t, err)
		return runs
	}
	reach := func(n int) {
		testdb.Eventually(t, fmt.Sprint("there are ", n, " records"), func() bool { return len(records(ids[rules-1])) >= n })
	}
	reach(2)
	leave()
	reach(5)
	for _, id := range ids {
		_, err := p.Disable(t.Context(), id, 0, "")
		require.NoError(t, err)
		// What was decided is carried out by whoever decided it, or by who finds it.
		var r *schedule.Rule
		require.Eventually(t, func() bool {
			r, err = p.Get(t.Context(), id)
			return err == nil && len(r.Planned) == 0
		}, testdb.Patience, 50*time.Millisecond)
		runs := records(id)
		require.Len(t, runs, int(r.Runs), "a record of each tick that ran, and none was skipped")
		for i, run := range runs {
			require.Equal(t, tickplan.TickID(id, run.Nominal), run.ID)
			if i > 0 {
				require.Equal(t, time.Second, runs[i-1].Nominal.Sub(run.Nominal), "no tick is missing")
			}
		}
		n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "origin.id", Value: id}})
		require.NoError(t, err)
		require.Equal(t, r.Runs, n, "tasks")
	}
}
