package fetchplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fetched is a fetch that began with so many tasks at hand, during which so many started.
func fetched(l *lead, waiting, started int, took time.Duration, won int) {
	l.learn(Held{Buffered: waiting, Started: 7}, Held{Started: 7 + uint64(started)}, took, won)
}

func TestAFetchBeginsEarlierAfterTheHandlersRanOutOfTasks(t *testing.T) {
	var l lead
	const free, quick = 100, 20_000.0
	require.Zero(t, l.toFetch(free, 501, quick, true), "half a batch lasts for long enough, as far as is known")

	fetched(&l, 500, 500, 30*time.Millisecond, 1000)
	require.Equal(t, MaxBatch, l.enough(free, quick))
	require.Equal(t, MaxBatch, l.toFetch(free, 501, quick, true))
	require.Zero(t, l.toFetch(free, 1001, quick, true), "a whole batch waits")
	require.Zero(t, l.toFetch(free, 51, 0, true), "slow tasks do not run out within a fetch")

	fetched(&l, 500, 499, 30*time.Millisecond, 1000)
	require.Zero(t, l.toFetch(free, 501, quick, true), "it lasted")
}

func TestADistantServerIsAskedForMoreTasks(t *testing.T) {
	const free, quick = 100, 20_000.0
	for _, c := range []struct {
		why        string
		trip, took time.Duration
		alone      bool
		perSecond  float64
		want       int
	}{
		{"2 of 22 ms are round trips", time.Millisecond, 22 * time.Millisecond, true, quick, 1000},
		{"10 of 30 ms are", 5 * time.Millisecond, 30 * time.Millisecond, true, quick, 2000},
		{"6 of 26 ms are", 3 * time.Millisecond, 26 * time.Millisecond, true, quick, 1200},
		{"they are all of it", 50 * time.Millisecond, 101 * time.Millisecond, true, quick, LargeBatch},
		{"others want the same tasks", 5 * time.Millisecond, 30 * time.Millisecond, false, quick, 1000},
		{"more than starts within half a second", 5 * time.Millisecond, 30 * time.Millisecond, true, 3000, 1500},
		{"a query took longer than the fetch", 50 * time.Millisecond, 30 * time.Millisecond, true, quick, 1000},
	} {
		l := lead{trip: c.trip}
		fetched(&l, 0, 1000, c.took, 1000)
		require.Equal(t, c.want, l.toFetch(free, 0, c.perSecond, c.alone), c.why)
		fetched(&l, 500, 0, c.took, 1000)
		require.LessOrEqual(t, l.toFetch(free, 0, c.perSecond, c.alone), MaxBatch, "the handlers had enough")
	}
}
