package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// permitless stores n tasks of a key and claims them, as who has not heard of a limit does.
func (s *swept) permitless(n int, key string) (open []*model.Task) {
	s.t.Helper()
	now := s.store.Clock.Now()
	for i := range n {
		t := lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: fmt.Sprint("before ", key, i), Options: model.Options{LimitKey: key}}, now)
		claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "w", ExecID: fmt.Sprint("before ", key, i)}, lifecycle.ResolveOptions(t.Options), now)
		require.Empty(s.t, no)
		open = append(open, claimed)
	}
	_, err := s.store.Tasks.Insert(s.t.Context(), open)
	require.NoError(s.t, err)
	return open
}

// end ends the only execution of a task.
func (s *swept) end(t *model.Task) {
	s.t.Helper()
	after, err := lifecycle.Finish(t, t.WorkerStates[0].ExecID, lifecycle.Outcome{}, lifecycle.ResolveOptions(t.Options), s.store.Clock.Now(), 0)
	require.NoError(s.t, err)
	written, err := s.store.Tasks.Writes(s.t.Context(), []store.Write{{Before: t, After: after}}, 0)
	require.NoError(s.t, err)
	require.True(s.t, written[0].Applied)
}

// pass lets time pass for what the gate knows of others.
func (s *swept) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Gate.mu.Lock()
	defer s.Gate.mu.Unlock()
	for _, k := range s.settles {
		k.since, k.looked, k.until = k.since-d, k.looked-d, k.until.Add(-d)
	}
}

// admitted is how many of n more tasks of a key are granted now, by executions of that name.
func (s *swept) admitted(n int, key, exec string) []*model.Task {
	s.t.Helper()
	var tasks []*model.Task
	for i := range n {
		tasks = append(tasks, lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: fmt.Sprint(exec, i), Options: model.Options{LimitKey: key}}, s.store.Clock.Now()))
	}
	_, err := s.store.Tasks.Insert(s.t.Context(), tasks)
	require.NoError(s.t, err)
	a, err := s.Admit(s.t.Context(), tasks, exec, nil)
	require.NoError(s.t, err)
	var granted []*model.Task
	for _, t := range tasks {
		if _, ok := a.Granted[t]; ok {
			granted = append(granted, t)
		}
	}
	return granted
}

func (s *swept) limitType(typ model.TaskType) model.TaskType {
	s.t.Helper()
	typ.Code = sweptType
	require.NoError(s.t, s.store.Types.Put(s.t.Context(), &typ))
	require.NoError(s.t, s.types.Fresh(s.t.Context(), 0))
	return typ
}

func TestWhatRanBeforeALimitWasSetCounts(t *testing.T) {
	s := newSwept(t)
	before := s.permitless(4, "")
	s.limitType(model.TaskType{MaxRunning: 5})
	require.Len(t, s.admitted(3, "", "first"), 1, "four are open")
	s.pass(-time.Minute) // however slow the machine is
	require.Empty(t, s.admitted(3, "", "second"))
	s.end(before[0])
	s.end(before[1])
	require.Empty(t, s.admitted(3, "", "third"), "it has not looked again")
	s.pass(time.Minute + soonestLook)
	require.Len(t, s.admitted(3, "", "fourth"), 2)
	s.end(before[2])
	s.end(before[3])
	s.pass(settleAfter)
	require.Len(t, s.admitted(9, "", "fifth"), 2)

	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	s.pass(soonestLook)
	require.Empty(t, s.admitted(1, "", "sixth"))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, of(s.sent, "find", "tasks", "lapse_at"), "what is settled is not looked at again")
}

func TestWhoClaimsWithoutALimitForAMomentIsSeen(t *testing.T) {
	s := newSwept(t)
	s.limitType(model.TaskType{MaxRunning: 5})
	require.Len(t, s.admitted(3, "", "first"), 3)
	s.permitless(1, "") // by a process that has not heard of the limit
	s.pass(soonestLook)
	require.Len(t, s.admitted(3, "", "second"), 1)
}

// The process did not see it happen: to it, nothing but the version of the types tells.
func TestALimitThatWasTakenAwayAndSetAgainIsNew(t *testing.T) {
	s := newSwept(t)
	first := s.limitType(model.TaskType{MaxRunning: 5})
	require.Len(t, s.admitted(1, "", "first"), 1)
	s.pass(settleAfter)
	require.Len(t, s.admitted(1, "", "second"), 1)
	require.True(t, s.settles[sweptType].settled)

	none := s.limitType(model.TaskType{Version: first.Version})
	s.permitless(3, "")
	s.limitType(model.TaskType{Version: none.Version, MaxRunning: 5})
	require.Empty(t, s.admitted(5, "", "third"), "two have permits, three have none")
}

// What began without a permit frees none when it ends: the key is looked at again.
func TestTheNextOfAKeyBeginsWhenWhatHadNoPermitHasEnded(t *testing.T) {
	s := newSwept(t)
	before := s.permitless(1, "c")
	s.limit(model.KeyLimit{MaxRunning: 1})
	require.Empty(t, s.admitted(1, "c", "first"))
	held := func() []*model.Task {
		held, err := s.store.Permits.HeldBack(t.Context(), store.LimitOf{Type: sweptType, Key: "c"}, 10)
		require.NoError(t, err)
		return held
	}
	require.Len(t, held(), 1)
	require.False(t, s.Pending().IsZero(), "it comes back to it")
	s.end(before[0])
	require.Eventually(t, func() bool { return len(held()) == 0 }, testdb.Patience, 20*time.Millisecond)
}

func TestWhatRunsLongWithoutAPermitIsLookedAtLessOften(t *testing.T) {
	s := &settling{since: time.Second, looked: 2 * time.Second}
	require.Equal(t, time.Second, s.pause())
	s.looked = time.Second + 80*time.Second
	require.Equal(t, 10*time.Second, s.pause())
	s.looked = 24 * time.Hour
	require.Equal(t, 30*time.Second, s.pause())
}

func TestWhatRanBeforeAKeyWasLimitedCounts(t *testing.T) {
	s := newSwept(t)
	before := s.permitless(2, "c")
	s.permitless(1, "d")
	s.limit(model.KeyLimit{MaxRunning: 2})
	require.Empty(t, s.admitted(2, "c", "first"))
	s.Gate.end() // it does not look again by itself
	require.Len(t, s.admitted(2, "d", "other"), 1)
	require.Len(t, s.admitted(2, "e", "third"), 2)
	held, err := s.store.Permits.HeldBack(t.Context(), store.LimitOf{Type: sweptType, Key: "c"}, 10)
	require.NoError(t, err)
	require.Len(t, held, 2, "they do not stand before others")

	s.end(before[0])
	s.pass(soonestLook)
	require.NoError(t, s.Look(t.Context(), sweptType, []store.LimitOf{{Type: sweptType, Key: "c"}}))
	held, err = s.store.Permits.HeldBack(t.Context(), store.LimitOf{Type: sweptType, Key: "c"}, 10)
	require.NoError(t, err)
	require.Len(t, held, 1, "one has got its turn")
}
