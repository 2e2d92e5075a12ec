package clock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The specification is the list of all events.
func TestMarksTellTheLastEventThatWasLargerThanASize(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var m Marks
		var all []mark
		for i := range rapid.IntRange(0, 20).Draw(r, "events") {
			e := mark{time.Duration(rapid.IntRange(0, 9).Draw(r, "size")), Instant{mono: time.Duration(i - rapid.IntRange(0, 9).Draw(r, "late"))}}
			m.Add(e.size, e.at)
			all = append(all, e)
		}
		for over := range time.Duration(11) {
			var want Instant
			found := false
			for _, e := range all {
				if e.size > over && (!found || e.at.mono >= want.mono) {
					want, found = e.at, true
				}
			}
			at, ok := m.Last(over)
			require.Equal(r, found, ok)
			require.Equal(r, want, at)
		}
	})
}

func TestMarksOfManySizesForgetNoneAndNeverTellAnEarlierTime(t *testing.T) {
	var m Marks
	const n = 10 * maxMarks
	for i := range n {
		m.Add(time.Duration(n-i), Instant{mono: time.Duration(i)})
	}
	require.Len(t, m.list, maxMarks)
	for i := range n {
		at, ok := m.Last(time.Duration(n - i - 1))
		require.True(t, ok)
		require.GreaterOrEqual(t, at.mono, time.Duration(i))
	}
}
