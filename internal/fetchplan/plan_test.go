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
