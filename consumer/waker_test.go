package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func woken(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestWokenTwiceIsWokenOnce(t *testing.T) {
	w := newWaker()
	require.False(t, woken(w.look))
	w.now()
	w.now()
	require.True(t, woken(w.look))
	require.False(t, woken(w.look))
}

func TestTheEarliestKnownTimeRearmsTheSleeper(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	w := newWaker()
	due, come := w.next(noon)
	require.True(t, due.IsZero())
	require.False(t, come)
	w.at(noon.Add(time.Minute))
	require.True(t, woken(w.rearm))
	w.at(noon.Add(time.Hour))
	require.False(t, woken(w.rearm), "later than what is known")
	w.at(noon.Add(time.Second))
	require.True(t, woken(w.rearm))
	due, come = w.next(noon)
	require.Equal(t, noon.Add(time.Second), due)
	require.False(t, come)
	_, come = w.next(noon.Add(time.Second))
	require.True(t, come)
	due, come = w.next(noon.Add(time.Second))
	require.True(t, due.IsZero(), "a time that has come is taken out")
	require.False(t, come)
}
