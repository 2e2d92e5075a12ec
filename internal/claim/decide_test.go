package claim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// candidate is a task that may be claimed at noon.
func candidate(key string, change func(*model.Task)) *model.Task {
	t := lifecycle.NewTask(lifecycle.Draft{Type: "mail", Key: key}, noon.Add(-time.Minute))
	if change != nil {
		change(t)
	}
	return t
}

func resolved(t *model.Task) (*lifecycle.Effective, *model.Options) {
	eff := lifecycle.ResolveOptions(t.Options)
	return &eff, nil
}

// asked is what the worker w asks at noon about tasks without limits.
func asked() question {
	return question{
		by: lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, terms: resolved, now: noon,
		limited: func(*model.Task) bool { return false },
	}
}

func befores(writes []store.Write) (out []*model.Task) {
	for _, w := range writes {
		out = append(out, w.Before)
	}
	return out
}

func TestWhatIsDueIsClaimedOnTheTermsOfItsTypeAndItsGrant(t *testing.T) {
	task, said := candidate("a", nil), &model.Options{}
	q := asked()
	q.terms = func(t *model.Task) (*lifecycle.Effective, *model.Options) {
		eff, _ := resolved(t)
		return eff, said
	}
	q.granted = map[*model.Task]limits.Grant{task: {From: noon.Add(time.Second), Until: noon.Add(time.Minute)}}
	d := q.decide([]*model.Task{task})
	require.Equal(t, []*model.Task{task}, befores(d.claims))
	_, state := lifecycle.ExecutionOf(d.claims[0].After, "e")
	require.Equal(t, noon.Add(time.Second), state.ClaimedAt)
	require.Same(t, said, d.claims[0].After.Applied)
}

func TestATaskThatIsNotDueComesBackWhenItIs(t *testing.T) {
	task := candidate("a", func(t *model.Task) { t.StartTime, t.DueAt = noon.Add(time.Second), noon.Add(time.Second) })
	d := asked().decide([]*model.Task{task})
	require.Equal(t, map[*model.Task]time.Time{task: noon.Add(time.Second)}, d.refused)
}

func TestALimitedTaskIsClaimedByAGrantInTimeOnly(t *testing.T) {
	granted, late, without := candidate("granted", nil), candidate("late", nil), candidate("without", nil)
	q := asked()
	q.limited = func(*model.Task) bool { return true }
	q.granted = map[*model.Task]limits.Grant{granted: {}, late: {Until: noon.Add(-1)}}
	d := q.decide([]*model.Task{late, granted})
	require.Equal(t, []*model.Task{granted}, befores(d.claims))
	require.False(t, d.unasked)
	d = q.decide([]*model.Task{without})
	require.Empty(t, d.claims)
	require.True(t, d.unasked)
}

func TestOnlyClaimsUseTheRoomOfAType(t *testing.T) {
	cancelled := candidate("cancelled", func(t *model.Task) { t.CancelRequestedAt = noon })
	first, second := candidate("first", nil), candidate("second", nil)
	other := candidate("other", func(t *model.Task) { t.Type = "other" })
	q := asked()
	q.room = func(typ string) int { return map[string]int{"mail": 1}[typ] }
	d := q.decide([]*model.Task{cancelled, first, second, other})
	require.Equal(t, []*model.Task{first}, befores(d.claims))
	require.Equal(t, []*model.Task{cancelled}, befores(d.repairs))
}

func TestFieldsThatPromiseWhatNoWorkerGetsAreRepaired(t *testing.T) {
	cancelled := candidate("cancelled", func(t *model.Task) { t.CancelRequestedAt = noon })
	expired := candidate("expired", func(t *model.Task) { t.Options.ExpiresAt = noon.Add(-time.Second) })
	d := asked().decide([]*model.Task{cancelled, expired})
	require.Equal(t, []*model.Task{cancelled, expired}, befores(d.repairs))
	require.Equal(t, 1, d.wrong, "what expires is no contradiction")
	require.True(t, d.repairs[1].After.Status.Ended())
	require.Empty(t, d.claims)
	require.Empty(t, d.refused)
}

func TestARefusedTaskComesBackWhenItsOwnRetryIsDue(t *testing.T) {
	failed := func(key, worker string) *model.Task {
		return candidate(key, func(t *model.Task) {
			t.Options.ConcurrentWorkerCount = 2
			t.WorkerStates = []model.WorkerState{{
				ExecID: "earlier", WorkerID: worker, Attempt: 1,
				FailKind: failkind.Error, FailTime: noon.Add(-time.Second), RetryAt: noon.Add(time.Second),
			}}
		})
	}
	own, tenants, others := failed("own", "w"), candidate("tenants", func(t *model.Task) { t.Tenant = "them" }), failed("others", "v")
	q := asked()
	q.by.Only = &lifecycle.Conditions{Tenants: []string{model.NoTenant}}
	d := q.decide([]*model.Task{own, tenants, others})
	require.Equal(t, []*model.Task{others}, befores(d.claims))
	require.Equal(t, map[*model.Task]time.Time{own: noon.Add(time.Second), tenants: {}}, d.refused)
}

// Only an event or an old copy offers a task to a worker that holds it. Its execution may end at any time.
func TestATaskThatThisWorkerHoldsIsLookedAtAgainSoon(t *testing.T) {
	held := candidate("held", func(t *model.Task) {
		t.Options.ConcurrentWorkerCount = 2
		t.WorkerStates = []model.WorkerState{{ExecID: "earlier", WorkerID: "w", Attempt: 1}}
	})
	d := asked().decide([]*model.Task{held})
	require.Equal(t, map[*model.Task]time.Time{held: noon.Add(time.Second)}, d.refused)
}

func TestATaskOfAnUnknownTypeStaysAsItIs(t *testing.T) {
	q := asked()
	q.terms = func(*model.Task) (*lifecycle.Effective, *model.Options) { return nil, nil }
	d := q.decide([]*model.Task{candidate("a", nil)})
	require.Empty(t, d.claims)
	require.Empty(t, d.repairs)
	require.Empty(t, d.refused)
}

func TestALapsedTaskIsTakenOverWhereThatIsAllowedAndElseLeft(t *testing.T) {
	eff, _ := resolved(candidate("a", nil))
	owned, no := lifecycle.Claim(candidate("a", nil), lifecycle.Claimant{WorkerID: "owner", ExecID: "o"}, *eff, noon)
	require.Empty(t, no)
	by := lifecycle.Claimant{WorkerID: "w", ExecID: "e"}
	_, _, ok := lapsed(owned, by, true, *eff, noon.Add(eff.Lease/2), 0)
	require.False(t, ok, "its owner may ping in time")
	over := noon.Add(2 * eff.Lease)
	w, taken, ok := lapsed(owned, by, true, *eff, over, 0)
	require.True(t, ok && taken)
	require.Equal(t, "o", w.Lapsed)
	require.Equal(t, "owner", Previous(w))
	require.Equal(t, owned.Rev+1, w.After.Rev, "one write")
	_, state := lifecycle.ExecutionOf(w.After, "e")
	require.True(t, lifecycle.Open(state))
	w, taken, ok = lapsed(owned, by, false, *eff, over, 0)
	require.True(t, ok && !taken)
	require.Equal(t, "o", w.Lapsed)
	require.Zero(t, lifecycle.OpenExecutions(w.After))
}

// A reading of the clock that took longer than half a lease says too little about when the lease ends: its worker
// would have to stop at once.
func TestALeaseThatWouldBeMostlyOverIsNotTaken(t *testing.T) {
	long := candidate("long", nil)
	short := candidate("short", func(t *model.Task) { t.Options.WorkerTimeout = 4 * time.Second })
	q := asked()
	q.behind = 2*time.Second + time.Millisecond
	d := q.decide([]*model.Task{short, long})
	require.Equal(t, []*model.Task{long}, befores(d.claims))
	require.Equal(t, map[*model.Task]time.Time{short: {}}, d.refused)
	q.behind = 2 * time.Second
	require.Len(t, q.decide([]*model.Task{short, long}).claims, 2)
}

func TestABidWinsNoMoreThanItMay(t *testing.T) {
	first, second := candidate("a", nil), candidate("b", nil)
	q := asked()
	q.most = 1
	require.Equal(t, []*model.Task{first}, befores(q.decide([]*model.Task{first, second}).claims))
}
