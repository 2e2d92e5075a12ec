package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

const inTwo = 500 // statements are two commands

// second refuses the second command of those that follow.
var second = proxy.Rule{Command: "update", Skip: 1, Do: proxy.Refuse, Code: 13}

// claims stores tasks that differ, and returns claims of them by the execution e.
func claims(t *testing.T) (s *store.Store, px *proxy.Proxy, writes []store.Write) {
	t.Helper()
	px = testdb.Behind(t)
	px.Patient()
	s, _ = openAs(t, options.Client().ApplyURI(px.URI()))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	topology, err := s.Topology(t.Context())
	require.NoError(t, err)
	if topology.Sharded {
		t.Skip("a router does not say which statements of a command it carried out")
	}
	now := s.Clock.Now()
	tasks := make([]*model.Task, inTwo)
	for i := range tasks {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, now)
		task.Rev = int64(i + 1)
		after, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, lifecycle.ResolveOptions(), now)
		require.Empty(t, no)
		tasks[i], writes = task, append(writes, store.Write{Before: task, After: after})
	}
	_, err = s.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	return s, px, writes
}

// count is how many of the writes are applied, and of how many nothing is known.
func count(written []store.Written) (applied, unanswered int) {
	for _, w := range written {
		if w.Applied {
			applied++
		}
		if w.Unanswered {
			unanswered++
		}
	}
	return applied, unanswered
}

func TestARefusedCommandHidesNoWriteOfTheOthersOfItsBatch(t *testing.T) {
	s, px, writes := claims(t)
	px.Set(second)
	written, err := s.Tasks.Writes(t.Context(), writes, store.Patience)
	require.Equal(t, store.Fatal, store.Classify(err))
	applied, unanswered := count(written)
	require.Equal(t, inTwo/2, applied)
	require.Equal(t, inTwo/2, unanswered)
}

func TestARefusedFenceHidesNoClaimThatWasWon(t *testing.T) {
	s, px, writes := claims(t)
	won := inTwo - 10
	_, err := s.Tasks.Writes(t.Context(), writes[:won], store.Patience)
	require.NoError(t, err)
	px.Set(second)
	written, err := s.Tasks.SettleClaim(t.Context(), writes, "e")
	require.Equal(t, store.Fatal, store.Classify(err))
	applied, unanswered := count(written)
	require.Equal(t, won, applied)
	require.Equal(t, inTwo-won, unanswered)
}

func TestARefusedPingHidesNoLostExecution(t *testing.T) {
	s, px, writes := claims(t)
	pings := make([]store.Ping, len(writes))
	for i, w := range writes { // nobody has claimed them
		pings[i] = store.Ping{ID: w.After.ID, ExecID: "e", Until: s.Clock.Now().Add(time.Duration(i) * time.Second)}
	}
	px.Set(second)
	lost, err := s.Tasks.Pings(t.Context(), pings, store.Patience)
	require.Equal(t, store.Fatal, store.Classify(err))
	require.Len(t, lost, len(writes))
}

func TestARefusedCommandHidesNoStepOfTheOthersOfItsBatch(t *testing.T) {
	s, px, writes := claims(t)
	_, err := s.Tasks.Writes(t.Context(), writes, store.Patience)
	require.NoError(t, err)
	steps := make([]store.StepWrite, len(writes))
	for i, w := range writes {
		steps[i] = store.StepWrite{ID: w.After.ID, ExecID: "e", Step: model.Step{Name: "paid", WorkerID: "w", At: s.Clock.Now()}}
	}
	px.Set(second)
	saved, err := s.Tasks.SaveSteps(t.Context(), steps, store.Patience)
	require.NoError(t, err)
	there, refused := 0, 0
	for _, st := range saved {
		if st.Refused != nil {
			refused++
		} else if st.Step.Name == "paid" {
			there++
		}
	}
	require.Equal(t, inTwo/2, there)
	require.Equal(t, inTwo/2, refused)
}
