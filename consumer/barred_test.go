package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARefusedTaskIsLeftOutForAWhile(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r refusals
	r.add("a", noon, time.Time{})
	require.Equal(t, []string{"a"}, r.ids(noon.Add(refusedFor-1)))
	require.Empty(t, r.ids(noon.Add(refusedFor)))
	for i := range 2 * maxRefusals {
		r.add(fmt.Sprint(i), noon, time.Time{})
	}
	require.Len(t, r.ids(noon), maxRefusals, "a query names only so many")
	require.True(t, r.full())
}

func TestATaskThatWaitsForItsOwnRetryIsLeftOutUntilThen(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r refusals
	require.True(t, r.next().IsZero())
	r.add("soon", noon, noon.Add(time.Second))
	r.add("late", noon, noon.Add(time.Hour))
	require.Equal(t, noon.Add(time.Second), r.next())
	require.Empty(t, r.ids(noon.Add(refusedFor)))
	require.Equal(t, noon.Add(time.Hour), r.next(), "asked about again, and still known")
}

// 1,000 tasks are refused, and beyond them is work: it is found in one walk, and the
// next walk waits.
func TestAWorkerWalksPastWhatItMayNotHave(t *testing.T) {
	const refused, work, n = 1000, 250, 100
	var b barred
	now := time.Hour
	walk := func() (fetches, found int) {
		for {
			now += time.Millisecond
			fetches++
			at := b.offset(now)
			seen := min(n, refused+work-at)
			none := at+seen <= refused
			if !none {
				found += seen
			}
			if !b.learn(now, n, seen < n, none) || seen < n {
				return fetches, found
			}
			if !none {
				return fetches, found
			}
		}
	}
	fetches, found := walk()
	require.Equal(t, 11, fetches)
	require.Equal(t, n, found)
	require.Equal(t, refused, b.offset(now), "it goes on where the work is")
	require.True(t, b.learn(now, n, true, false))
	require.Zero(t, b.offset(now), "at the end it goes back to the head")
	require.False(t, b.learn(now, n, false, true), "and does not walk again at once")
	now += refusedFor + time.Second
	fetches, found = walk()
	require.Equal(t, 11, fetches)
	require.Equal(t, n, found)
	require.Zero(t, b.offset(now+refusedFor), "a long walk looks at the head again")
}

func TestAWorkerThatIsRefusedNothingNeverSkips(t *testing.T) {
	var b barred
	for i := range 100 {
		require.Zero(t, b.offset(time.Duration(i)))
		require.True(t, b.learn(time.Duration(i), 100, i%3 == 0, false))
	}
}
