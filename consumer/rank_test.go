package consumer

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
				r := ranks{watchers: watchers, rank: rank}
				d := r.delay(id)
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
	var r ranks
	for i := range 100 {
		require.Zero(t, r.delay(fmt.Sprint(i)), "the permits have not been read")
	}
	r.learn(store.Watching{Watchers: 1})
	for i := range 100 {
		require.Zero(t, r.delay(fmt.Sprint(i)))
	}
}

// second finds a task for which the watcher is not the first.
func second(t *testing.T, r ranks) string {
	t.Helper()
	for i := range 100 {
		if id := fmt.Sprint(i); r.delay(id) > 0 {
			return id
		}
	}
	require.Fail(t, "it is the first for every task")
	return ""
}

func TestAWatcherThatDoesNotTakeItsShareIsNotWaitedForAnyLonger(t *testing.T) {
	var r ranks
	r.learn(store.Watching{Watchers: 2, Rank: 1})
	id := second(t, r)
	require.Equal(t, rankDelay, r.delay(id))
	r.waited(0, 2)
	require.Equal(t, rankDelay, r.delay(id), "it may have been slow")
	r.waited(1, 0)
	r.waited(0, 2)
	require.Equal(t, rankDelay, r.delay(id), "it took one in between")
	r.waited(0, 1)
	require.Zero(t, r.delay(id))
	r.learn(store.Watching{Watchers: 2, Rank: 1})
	require.Zero(t, r.delay(id), "its permit alone takes no task")
	r.learn(store.Watching{Watchers: 2})
	require.Equal(t, rankDelay, r.delay(second(t, r)), "another one may")
}

func TestAStartTimeThatManyKnowIsNotMetByAllAtTheSameMoment(t *testing.T) {
	due := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var alone ranks
	require.Zero(t, alone.turn(due, true, 1, 7))
	require.Zero(t, alone.turn(due, false, 1, 7))
	at := map[time.Duration]int{}
	for rank := range 2 {
		r := ranks{watchers: 2, rank: rank}
		at[r.turn(due, true, 1000, 0)]++
	}
	require.Equal(t, map[time.Duration]int{0: 1, rankDelay: 1}, at, "one of the watchers is on time")
	var others ranks
	distinct := map[time.Duration]bool{}
	for i := range 1000 {
		d := others.turn(due, false, 1000, share(fmt.Sprint(i)))
		require.GreaterOrEqual(t, d, rankDelay)
		require.Less(t, d, rankDelay+longestTurn)
		distinct[d.Truncate(time.Millisecond)] = true
	}
	require.Greater(t, len(distinct), 200)
}
