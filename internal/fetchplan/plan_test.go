package fetchplan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/model"
)

func newPlan() *Plan { return New(10, rand.New(rand.NewPCG(1, 1))) }

func TestEachOfVeryManyTypesHasItsTurn(t *testing.T) {
	p := newPlan()
	types := []string{"a", "b", "c", "d", "e"}
	turn := func(wantLast bool, want ...string) {
		t.Helper()
		some, last := p.Turn(types, 2)
		require.Equal(t, want, some)
		require.Equal(t, wantLast, last)
	}
	turn(false, "a", "b")
	turn(false, "c", "d")
	turn(true, "e")
	turn(false, "a", "b")
	types = []string{"a", "b", "d", "e"} // c was to be the next
	turn(true, "d", "e")
	types = []string{"b"}
	turn(true, "b")
}

func catch(n, take int) claim.Catch {
	tasks := make([]*model.Task, n)
	return claim.Catch{Tasks: tasks, Queue: tasks, AtHead: true, Take: take}
}

func TestAFetchThatFoundLessThanItLookedForIsTheLast(t *testing.T) {
	p := newPlan()
	more, anew := p.Done(Fetched{Got: catch(10, 10), Took: 10, Workers: 1, Ended: time.Second})
	require.True(t, more)
	require.False(t, anew)
	more, anew = p.Done(Fetched{Got: catch(3, 10), Took: 3, Workers: 1, Ended: time.Minute})
	require.True(t, more)
	require.True(t, anew, "tasks of other priorities may be known to nobody")
	more, anew = p.Done(Fetched{Got: catch(3, 10), Took: 3, Workers: 1, Ended: time.Minute})
	require.False(t, more)
	require.False(t, anew)
	more, _ = p.Done(Fetched{Got: catch(3, 10), Took: 2, Lost: 1, Workers: 1, Ended: time.Minute})
	require.True(t, more, "others took some: what is behind them is not known")
}

// A worker that rested for as long as ever would take seconds for each priority of a short backlog.
func TestSoonAfterABacklogHasEndedAFullLookIsDue(t *testing.T) {
	p := newPlan()
	full := catch(1, 1)
	full.Full = true
	done := func(got claim.Catch, at time.Duration) (more, anew bool) {
		return p.Done(Fetched{Got: got, Took: len(got.Tasks), Workers: 1, Ended: at})
	}
	_, anew := done(full, time.Minute)
	require.False(t, anew)
	require.Equal(t, claim.FullEvery, p.FullIn(time.Minute))

	more, anew := done(catch(5, 10), time.Minute+10*time.Millisecond)
	require.False(t, more)
	require.False(t, anew, "the last was a moment ago")
	require.Equal(t, endedPause-time.Second/10, p.FullIn(time.Minute+time.Second/10), "it does not rest for longer")
	require.Equal(t, claim.FullEvery, p.FullIn(time.Hour), "nothing could be looked at: that is not tried all the time")

	more, anew = done(catch(0, 10), time.Minute+endedPause)
	require.True(t, more)
	require.True(t, anew)
	require.Equal(t, claim.FullEvery-endedPause, p.FullIn(time.Minute+endedPause))
	more, anew = done(catch(0, 10), time.Minute+claim.FullEvery)
	require.False(t, more)
	require.False(t, anew, "one full look for one end")
}

func TestAFetchOfNothingButWhatIsRefusedLooksBehindIt(t *testing.T) {
	p := newPlan()
	now := time.Hour
	more, _ := p.Done(Fetched{Got: catch(10, 10), OnlyRefused: true, Workers: 1, Ended: now})
	require.True(t, more)
	a := p.Aim(10, Held{}, 1, now)
	require.Equal(t, 10, a.For(true).Skip)
	require.False(t, p.Saw(a, catch(0, 10), 1, now), "the end of the walk is no sign of a crowd")
	more, _ = p.Done(Fetched{Got: catch(0, 10), OnlyRefused: true, Workers: 1, Ended: now})
	require.False(t, more)
	require.Zero(t, p.Aim(10, Held{}, 1, now).For(true).Skip)
}

func TestOnlyACrowdRestsBetweenFetches(t *testing.T) {
	p := newPlan()
	done := Fetched{Got: catch(10, 10), Took: 1, Lost: 9, Busy: time.Second, Workers: 1, Ended: time.Minute}
	p.Done(Fetched{Got: catch(10, 10), Took: 10, Busy: time.Second, Workers: 1, Ended: time.Minute})
	require.Equal(t, time.Minute, p.Next())
	done.Workers = 16
	for range 20 {
		p.Done(done)
	}
	require.Greater(t, p.Next(), time.Minute)
	done.Busy = 0
	p.Done(done)
	require.Equal(t, time.Minute, p.Next(), "limited tasks must not come late")
}
