package periodic_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// The engine reads which runs a worker has begun: a tick that comes while the newest run waits
// has the attempt that the failure before it means, and one that comes while it runs has not.
func TestATickIsJudgedByTheNewestRunThatAWorkerHasBegun(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	prod, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	puller := pull.New(prod)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "r", Cron: "* * * * * *", Type: "tick", OnFailure: schedule.FailureRetry})
	require.NoError(t, err)
	enabled, err := p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	engine(t, p.Run)

	// claim has a worker begin waiting runs, the oldest first.
	claim := func(most int) (claimed []pull.Fetched) {
		require.Eventually(t, func() bool {
			claimed, err = puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"tick"}, Max: most, Lease: time.Hour})
			require.NoError(t, err)
			return len(claimed) > 0
		}, testdb.Patience, 20*time.Millisecond)
		return claimed
	}
	// tick waits for the run of a tick after those, and returns its attempt.
	tick := func(after time.Time) (attempt int) {
		require.Eventually(t, func() bool {
			rule, err := p.Get(t.Context(), r.ID)
			require.NoError(t, err)
			for _, a := range rule.Active {
				if a.Nominal.After(after) {
					attempt = a.Attempt
					return true
				}
			}
			return false
		}, testdb.Patience, 20*time.Millisecond)
		return attempt
	}
	last := func() time.Time {
		rule, err := p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		return rule.Last.Nominal
	}

	first := claim(1)[0]
	_, err = puller.Fail(t.Context(), first.Handle, "the first run fails", producer.Failure{Fatal: true})
	require.NoError(t, err)
	tick(last()) // the engine may have looked at the runs before that one failed
	require.Equal(t, 2, tick(last()), "the newest run waits for a worker: the one that failed is judged")

	claim(1000)
	tick(last()) // as above
	require.Equal(t, 1, tick(last()), "the newest run that has begun has not failed")

	rule, err := p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Equal(t, enabled.UpdatedAt, rule.UpdatedAt, "ticks and ends are no edits")
	disabled, err := p.Disable(t.Context(), r.ID, 0, "")
	require.NoError(t, err)
	require.True(t, disabled.UpdatedAt.After(enabled.UpdatedAt))
}
