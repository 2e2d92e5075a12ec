package limits

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// looksForNoWish lets no preparation be left out for a look at wishes, however slow the machine is.
func (s *swept) looksForNoWish() {
	s.with(sweptType, func(k *candidates, now time.Duration) { k.wishCheck = now + time.Hour })
}

// Whoever read a permit before a task was prepared in it must not free it.
func TestAPreparedPermitIsAnotherThanBefore(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(1)
	tasks := s.stored(3)
	had := s.granted(tasks[:1], "e1", nil)
	s.Learn(tasks)
	s.looksForNoWish()
	prepare := func(p lifecycle.Permit, running string, next *model.Task, exec string) lifecycle.Permit {
		t.Helper()
		got, err := s.Prepare(t.Context(), sweptType, []Preparation{{Permit: p, Running: running, Task: next, ExecID: exec}})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, []lifecycle.Permit{got[p.Name]}, s.holders())
		return got[p.Name]
	}
	both := prepare(had[0], "e1", tasks[1], "e2")
	require.Equal(t, had[0].PermitUse, both.PermitUse)
	require.Equal(t, lifecycle.UseOf(tasks[1], "e2"), *both.Next)
	then := prepare(both, "e2", tasks[2], "e3")
	require.Equal(t, *both.Next, then.PermitUse, "the first has ended")
	require.NoError(t, s.store.Permits.Free(t.Context(), []lifecycle.Permit{had[0], both}))
	require.Equal(t, []lifecycle.Permit{then}, s.holders())

	for i, exec := range []string{"e2", "e3"} { // an end looks it up by either
		found, err := s.store.Permits.OfExecutions(t.Context(), tasks[1+i].ID, []string{exec})
		require.NoError(t, err)
		require.Equal(t, []lifecycle.Permit{then}, found)
	}
	s.store.Clock.Skip(time.Minute)
	next := s.stored(1)
	passed := s.granted(next, "e4", []lifecycle.Permit{then})
	require.Len(t, passed, 1)
	require.Nil(t, passed[0].Next)
	require.Equal(t, passed, s.holders())
}

// Somebody else ends an execution whose process has prepared what follows: the permit frees, and
// the claim that was prepared never arrives.
func TestThePermitOfAnEndedExecutionFreesWithWhatIsPrepared(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(1)
	tasks := s.stored(2)
	had := s.granted(tasks[:1], "e1", nil)
	s.Learn(tasks)
	s.looksForNoWish()
	_, err := s.Prepare(t.Context(), sweptType, []Preparation{{Permit: had[0], Running: "e1", Task: tasks[1], ExecID: "e2"}})
	require.NoError(t, err)
	s.Ended(tasks[0], []string{"e1"})
	require.NoError(t, s.Wait(t.Context()))
	require.Empty(t, s.holders())
	now, err := s.store.Tasks.ByIDs(t.Context(), []string{tasks[1].ID})
	require.NoError(t, err)
	require.Greater(t, now[tasks[1].ID].Rev, tasks[1].Rev, "a claim by the prepared permit comes too late")
}

// The end of the one that is left out looks whether another process waits. Until then nothing is known.
func TestOneExecutionASecondIsLeftOutSoThatItsEndLooksForWishes(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(2)
	tasks := s.stored(4)
	had := append(s.granted(tasks[:1], "e0", nil), s.granted(tasks[1:2], "e1", nil)...)
	require.Len(t, had, 2)
	s.Learn(tasks)
	now := s.store.Local().Monotonic()
	s.with(sweptType, func(k *candidates, _ time.Duration) { k.wishCheck, k.spared = now-wishAfter, now-wishAfter })
	prepared := func(i int) int {
		got, err := s.Prepare(t.Context(), sweptType, []Preparation{{Permit: had[i], Running: "e" + strconv.Itoa(i), Task: tasks[2+i], ExecID: "next"}})
		require.NoError(t, err)
		return len(got)
	}
	require.Zero(t, prepared(0))
	s.with(sweptType, func(k *candidates, _ time.Duration) {
		require.GreaterOrEqual(t, k.spared, now)
		k.spared += time.Hour // however slow the machine is
	})
	require.Equal(t, 1, prepared(1))
}
