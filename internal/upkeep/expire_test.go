package upkeep

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// expired stores n tasks that nobody started until then.
func expired(t *testing.T, st *store.Store, prefix string, n int, at time.Time) {
	t.Helper()
	var tasks []*model.Task
	for i := range n {
		tasks = append(tasks, lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: prefix + fmt.Sprint(i), Options: model.Options{ExpiresAt: at}}, at.Add(-time.Hour)))
	}
	_, err := st.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
}

// A page of tasks that one transaction holds does not stand before the others, also where they expire at
// the same moment.
func TestExpiryPassesAPageOfHeldTasks(t *testing.T) {
	st, db := opened(t)
	at := st.Clock.Now().Add(-time.Hour)
	expired(t, st, "held", perExpiry, at)
	expired(t, st, "same", 3, at)
	expired(t, st, "later", 3, at.Add(time.Second))
	session := holding(t, db)

	ended := map[string]bool{}
	j := Expiry{Store: st, Types: tasktypes.New(st), Ended: func(t *model.Task) { ended[t.Key] = true }}
	others := map[string]bool{}
	for i := range 3 {
		others[fmt.Sprint("same", i)], others[fmt.Sprint("later", i)] = true, true
	}
	require.Eventually(t, func() bool { // a short time limit may find the machine slow
		require.NoError(t, j.Run(t.Context()))
		return len(ended) == len(others)
	}, testdb.Patience, time.Millisecond)
	require.Equal(t, others, ended)

	require.NoError(t, session.AbortTransaction(t.Context()))
	require.Eventually(t, func() bool {
		require.NoError(t, j.Run(t.Context()))
		return len(ended) == perExpiry+len(others)
	}, testdb.Patience, time.Millisecond)
}

func TestExpiryEndsTasksByTheTypesAsTheyAreNow(t *testing.T) {
	st := open(t)
	types := tasktypes.New(st)
	require.NoError(t, types.Fresh(t.Context(), 0))
	types.Expire() // as the copy of a worker is, which compares it only when it polls
	const retention = 3 * time.Hour
	require.NoError(t, st.Types.Put(t.Context(), &model.TaskType{Code: "t", Options: model.Options{Retention: retention}}))
	expired(t, st, "", 1, st.Clock.Now().Add(-time.Hour))

	var ended []*model.Task
	j := Expiry{Store: st, Types: types, Ended: func(t *model.Task) { ended = append(ended, t) }}
	testdb.Eventually(t, "the task expires", func() bool { // a short time limit may find the machine slow
		require.NoError(t, j.Run(t.Context()))
		return len(ended) > 0
	})
	require.Equal(t, retention, ended[0].ArchiveAt.Sub(ended[0].FinishedAt).Round(time.Second))
}
