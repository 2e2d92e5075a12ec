package claim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARefusedTaskIsLeftOutForAWhile(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r Refusals
	r.Add("a", noon, time.Time{})
	require.Equal(t, []string{"a"}, r.IDs(noon.Add(RefusedFor-1)))
	require.Empty(t, r.IDs(noon.Add(RefusedFor)))
	for i := range 2 * maxRefusals {
		r.Add(fmt.Sprint(i), noon, time.Time{})
	}
	require.Len(t, r.IDs(noon), maxRefusals, "a query names only so many")
	require.True(t, r.Full())
}

func TestARefusalEndsAlthoughTheClockOfTheDatabaseWasSetBack(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, back := range []time.Duration{5 * time.Second, RefusedFor, time.Hour} {
		var r Refusals
		r.Add("a", noon, time.Time{})
		r.Add("own", noon, noon.Add(time.Hour))
		r.AddHeld("held", noon)
		now := noon.Add(-back + 2*RefusedFor)
		require.False(t, r.Has("a", now))
		require.Empty(t, r.IDs(now))
		require.True(t, r.CameBack())
		r.Add("a", now, time.Time{})
		require.Equal(t, []string{"a"}, r.IDs(now.Add(RefusedFor-1)))
	}
}

// The time of a claim may be ahead of the estimate.
func TestARefusalByATimeThatIsAheadLasts(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r Refusals
	r.Add("a", noon.Add(time.Second), time.Time{})
	require.True(t, r.Has("a", noon))
	require.Equal(t, []string{"a"}, r.IDs(noon))
}

func TestATaskThatWaitsForItsOwnRetryIsLeftOutUntilThen(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r Refusals
	require.True(t, r.Next().IsZero())
	r.Add("soon", noon, noon.Add(time.Second))
	r.Add("late", noon, noon.Add(time.Hour))
	require.Equal(t, noon.Add(time.Second), r.Next())
	require.Empty(t, r.IDs(noon.Add(RefusedFor)))
	require.Equal(t, noon.Add(time.Hour), r.Next(), "asked about again, and still known")
}

func TestATaskThatWasWrittenSinceItsRefusalIsNoLongerLeftOut(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var r Refusals
	r.Add("own", noon, noon.Add(time.Second))
	r.AddHeld("held", noon)
	r.Lift("own")
	r.Lift("held")
	require.Empty(t, r.IDs(noon))
	require.True(t, r.Next().IsZero())
	require.True(t, r.Held().IsZero())
}
