package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// stopped is a machine's clock that a test moves by [store.Clock.Skip].
type stopped struct{}

func (stopped) Now() time.Time           { return time.Unix(0, 0) }
func (stopped) Monotonic() time.Duration { return 0 }

// Each process that sees a task that was given its turn asks for the start. Who is late does
// not undo the turn, by which the claim of who has the start would be refused.
func TestATaskWhoseStartSomebodyElseHasIsLeftToThem(t *testing.T) {
	const tolerance = 5 * time.Second
	first := newSweptBy(t, stopped{})
	first.limit(model.KeyLimit{RateLimit: &model.RateLimit{Count: 1, Per: 100 * time.Second}})
	second := first.another()
	first.store.Clock.Skip(second.store.Clock.Now().Sub(first.store.Clock.Now())) // however long it took to open it
	now := first.store.Clock.Now()
	held := lifecycle.HoldBack(lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: "k", Options: model.Options{LimitKey: "c"}}, now), now)
	_, err := first.store.Tasks.Insert(t.Context(), []*model.Task{held})
	require.NoError(t, err)
	require.NoError(t, first.Look(t.Context(), sweptType, []store.LimitOf{{Type: sweptType, Key: "c"}}))
	turn, err := first.store.Tasks.Get(t.Context(), held.ID)
	require.NoError(t, err)
	require.False(t, lifecycle.HeldBack(turn))

	got, err := first.Admit(t.Context(), []*model.Task{turn}, "e1", nil)
	require.NoError(t, err)
	require.Contains(t, got.Granted, turn)
	late, err := second.Admit(t.Context(), []*model.Task{turn}, "e2", nil)
	require.NoError(t, err)
	require.Empty(t, late.Granted)
	require.Zero(t, late.HeldBack)
	require.Equal(t, turn.WakeAt.Add(tolerance), late.Later[turn])
	require.False(t, second.Pending().IsZero(), "it comes back to it")
	after, no := lifecycle.Claim(turn, lifecycle.Claimant{WorkerID: "w", ExecID: "e1"}, lifecycle.ResolveOptions(turn.Options), now)
	require.Empty(t, no)
	written, err := first.store.Tasks.Writes(t.Context(), []store.Write{{Before: turn, After: after}}, 0)
	require.NoError(t, err)
	require.True(t, written[0].Applied)

	// Had they died, the start would be lost, and the task wait for the next.
	second.store.Clock.Skip(tolerance + time.Millisecond)
	late, err = second.Admit(t.Context(), []*model.Task{turn}, "e3", nil)
	require.NoError(t, err)
	require.Empty(t, late.Granted)
	require.Empty(t, late.Later)
}

// Over a slow network a look takes longer than a start: one turn for each look would keep the rate from being reached.
func TestALookGivesATurnForEachStartThatCanBeReserved(t *testing.T) {
	s := newSweptBy(t, stopped{})
	rate := model.RateLimit{Count: 100, Per: time.Second}
	s.limit(model.KeyLimit{RateLimit: &rate})
	s.paced.saw(80 * time.Millisecond) // the way of a claim
	s.Gate.end()                       // it does not look again by itself
	now := s.store.Clock.Now()
	var tasks []*model.Task
	for i := range 50 {
		task := lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: fmt.Sprint(i), Options: model.Options{LimitKey: "c"}}, now)
		tasks = append(tasks, lifecycle.HoldBack(task, now))
	}
	_, err := s.store.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	key := store.LimitOf{Type: sweptType, Key: "c"}
	turns := lifecycle.StartsAhead(rate, s.pace(), time.Time{}, now)
	require.Greater(t, turns, 5)
	require.NoError(t, s.Look(t.Context(), sweptType, []store.LimitOf{key}))
	left, err := s.store.Permits.HeldBack(t.Context(), key, 100)
	require.NoError(t, err)
	require.Len(t, left, 50-turns)
}
