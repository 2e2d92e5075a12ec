package stream

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

func TestOfTheWatchersOfAnEventExactlyOneWritesAtOnce(t *testing.T) {
	for watchers := 1; watchers <= 4; watchers++ {
		first := map[int]int{}
		for i := range 1000 {
			id, delays := fmt.Sprintf("-/t/%d", i), map[time.Duration]bool{}
			for rank := range watchers {
				r := Ranks{watchers: watchers, rank: rank}
				d := r.Delay(id)
				if d == 0 {
					first[rank]++
				}
				delays[d] = true
			}
			require.Len(t, delays, watchers, "each has a turn of its own")
			require.Contains(t, delays, time.Duration(0))
		}
		for rank := range watchers {
			require.InDelta(t, 1000/watchers, first[rank], 100, "the tasks are shared evenly")
		}
	}
}

func TestALoneWatcherWaitsForNobody(t *testing.T) {
	var r Ranks
	for i := range 100 {
		require.Zero(t, r.Delay(fmt.Sprint(i)), "the permits have not been read")
	}
	r.Learn(store.Watching{Watchers: 1})
	for i := range 100 {
		require.Zero(t, r.Delay(fmt.Sprint(i)))
	}
}

// second finds a task for which the watcher is not the first.
func second(t *testing.T, r *Ranks) string {
	t.Helper()
	for i := range 100 {
		if id := fmt.Sprint(i); r.Delay(id) > 0 {
			return id
		}
	}
	require.Fail(t, "it is the first for every task")
	return ""
}

func TestAWatcherThatDoesNotTakeItsShareIsNotWaitedForAnyLonger(t *testing.T) {
	var r Ranks
	r.Learn(store.Watching{Watchers: 2, Rank: 1})
	id := second(t, &r)
	require.Equal(t, rankDelay, r.Delay(id))
	r.Waited(0, 2)
	require.Equal(t, rankDelay, r.Delay(id), "it may have been slow")
	r.Waited(1, 0)
	r.Waited(0, 2)
	require.Equal(t, rankDelay, r.Delay(id), "it took one in between")
	r.Waited(0, 1)
	require.Zero(t, r.Delay(id))
	r.Learn(store.Watching{Watchers: 2, Rank: 1})
	require.Zero(t, r.Delay(id), "its permit alone takes no task")
	r.Learn(store.Watching{Watchers: 2})
	require.Equal(t, rankDelay, r.Delay(second(t, &r)), "another one may")
}

func TestAStartTimeThatManyKnowIsNotMetByAllAtTheSameMoment(t *testing.T) {
	due := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var alone Ranks
	require.Zero(t, alone.turn(due, true, 1, 7))
	require.Zero(t, alone.turn(due, false, 1, 7))
	at := map[time.Duration]int{}
	for rank := range 2 {
		r := Ranks{watchers: 2, rank: rank}
		at[r.turn(due, true, 1000, 0)]++
	}
	require.Equal(t, map[time.Duration]int{0: 1, rankDelay: 1}, at, "one of the watchers is on time")
	var others Ranks
	distinct := map[time.Duration]bool{}
	for i := range 1000 {
		d := others.turn(due, false, 1000, share(fmt.Sprint(i)))
		require.GreaterOrEqual(t, d, rankDelay)
		require.Less(t, d, rankDelay+longestTurn)
		distinct[d.Truncate(time.Millisecond)] = true
	}
	require.Greater(t, len(distinct), 200)
}
