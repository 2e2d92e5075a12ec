package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const inTwo = 500 // statements are two commands

// refused refuses that many updates of tasks, after as many as it skips.
func refused(skip, times int) proxy.Rule {
	return proxy.Rule{Command: "update", Collection: "tasks", Skip: skip, Times: times, Do: proxy.Refuse, Code: 13}
}

// lastingly refuses all updates of tasks but the first. Its error may pass by itself.
func lastingly() proxy.Rule {
	r := refused(1, -1)
	r.Code = 391
	return r
}

// different makes the write of a task a statement of its own.
func different(i int) func(*model.Task) {
	return func(t *model.Task) { t.Rev = int64(i + 1) }
}

// The server refuses one of the commands of a batch. What the other one has won runs, and the error is
// reported for the rest.
func TestClaimsRunThoughACommandOfTheirBatchWasRefused(t *testing.T) {
	for name, rule := range map[string]proxy.Rule{"once": refused(1, 1), "from then on": refused(1, -1), "perhaps not for long": lastingly()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			tasks := make([]*model.Task, inTwo)
			for i := range tasks {
				tasks[i] = put(t, w.c, fmt.Sprint(i), different(i))
			}
			w.px.Set(rule)
			w.c.claiming.Lock()
			out, err := w.c.claim(t.Context(), tasks, nil)
			w.c.claiming.Unlock()
			w.px.Clear()
			require.True(t, store.Final(err))
			require.Len(t, out.Won, inTwo/2)
			require.Equal(t, inTwo/2, w.c.held.count().all)
		})
	}
}

// A lease that ends with the deadline cannot be extended, so only the answer to the claim says that a majority
// has it.
func TestAClaimDoesNotRunThatAFailoverMayUndo(t *testing.T) {
	w := newWorld(t, nil)
	task := put(t, w.c, "a", func(t *model.Task) { t.Options.ExecutionTimeout = time.Second })
	rule := refused(0, -1)
	rule.Do = proxy.RefuseAfter
	claimed := w.px.Set(proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.CutAfter})
	w.px.Set(rule)
	w.c.claiming.Lock()
	out, err := w.c.claim(t.Context(), []*model.Task{task}, nil)
	w.c.claiming.Unlock()
	w.px.Clear()
	require.Equal(t, 1, claimed.Sprung())
	require.Equal(t, store.Fatal, store.Classify(err))
	require.Empty(t, out.Won)
	require.Len(t, w.get(task.ID).WorkerStates, 1, "it is there, and its lease lapses")
}

func TestTakeoversRunThoughACommandOfTheirBatchWasRefused(t *testing.T) {
	w := newWorld(t, nil)
	ids := make([]string, inTwo)
	for i := range ids {
		ids[i] = w.owned(fmt.Sprint(i), func(t *model.Task) {
			different(i)(t)
			twoSeconds(t)
		})
	}
	w.pass(3 * time.Second)
	w.c.health.Trust = claim.NewTrust(w.c.store.Clock, w.c.cfg.Clock)
	w.c.health.Trust.Answered()
	w.c.cfg.Concurrency = inTwo
	found, err := w.c.store.Tasks.Lapsed(t.Context(), []string{quietType}, &store.LapsedFrom{}, inTwo)
	require.NoError(t, err)
	require.Len(t, found, inTwo)
	w.px.Set(refused(1, 1))
	_, _, err = w.c.preempt(t.Context(), found)
	w.px.Clear()
	require.Equal(t, store.Fatal, store.Classify(err))
	require.Equal(t, inTwo/2, w.c.held.count().all)
	taken := 0
	for _, id := range ids {
		taken += len(w.get(id).WorkerStates) - 1
	}
	require.Equal(t, inTwo/2, taken)
}

// A ping that the server refuses does not keep the process from learning what became of its task.
func TestARefusedPingTellsALostTask(t *testing.T) {
	w := newWorld(t, nil)
	task := put(t, w.c, "a", nil)
	w.c.claiming.Lock()
	_, err := w.c.claim(t.Context(), []*model.Task{task}, nil)
	w.c.claiming.Unlock()
	require.NoError(t, err)
	x := w.c.held.each()[0]
	_, _, err = w.c.store.Tasks.Change(t.Context(), task.ID, func(now *model.Task) (*model.Task, error) {
		after := *now
		after.WorkerStates = []model.WorkerState{now.WorkerStates[0]}
		after.WorkerStates[0].FailTime, after.Rev = w.c.store.Clock.Now(), now.Rev+1
		return &after, nil
	})
	require.NoError(t, err)
	w.px.Set(refused(0, 1))
	require.False(t, w.c.leases.Ping(t.Context(), x))
	w.px.Clear()
	require.False(t, x.Pingable())
}

// A router may refuse one of several ends or claims and have carried out the others.
func TestAClaimThatFollowedAnEndRunsThoughTheirCommandWasRefused(t *testing.T) {
	l := newChain(t, 100)
	l.until(t, l.px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "$inc", Skip: 3, Do: proxy.RefuseAfter, Code: 13}))
	l.begin(t, 30*time.Second)
	l.letGo()
	l.g.await(t)
	require.Equal(t, 1, l.g.most)
}

// A ping proves the claims of a batch whose answer was lost. It must not lengthen the short leases among them.
func TestSettledClaimsKeepTheirOwnLeases(t *testing.T) {
	w := newWorld(t, nil)
	long, short := put(t, w.c, "a", leased(10*time.Second, time.Hour)), put(t, w.c, "b", twoSeconds)
	w.px.Set(proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.CutAfter})
	w.c.claiming.Lock()
	out, err := w.c.claim(t.Context(), []*model.Task{long, short}, nil)
	w.c.claiming.Unlock()
	require.NoError(t, err)
	require.Len(t, out.Won, 2)
	require.Equal(t, w.serverTime().Add(time.Hour), w.get(long.ID).LapseAt.In(time.UTC))
	require.Equal(t, w.serverTime().Add(2*time.Second), w.get(short.ID).LapseAt.In(time.UTC))
}
