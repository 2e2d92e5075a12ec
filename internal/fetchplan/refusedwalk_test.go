package fetchplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
)

// 1,000 tasks are refused, and beyond them is work: it is found in one walk, and the
// next walk waits.
func TestAWorkerWalksPastWhatItMayNotHave(t *testing.T) {
	const refused, work, n = 1000, 250, 100
	var b refusedWalk
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
	now += claim.RefusedFor + time.Second
	fetches, found = walk()
	require.Equal(t, 11, fetches)
	require.Equal(t, n, found)
	require.Zero(t, b.offset(now+claim.RefusedFor), "a long walk looks at the head again")
}

func TestAWorkerThatIsRefusedNothingNeverSkips(t *testing.T) {
	var b refusedWalk
	for i := range 100 {
		require.Zero(t, b.offset(time.Duration(i)))
		require.True(t, b.learn(time.Duration(i), 100, i%3 == 0, false))
	}
}
