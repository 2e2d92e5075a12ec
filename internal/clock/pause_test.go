package clock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPauseTakesItsTimeUnlessTheContextEnds(t *testing.T) {
	began := System().Monotonic()
	require.True(t, Pause(t.Context(), 10*time.Millisecond))
	require.GreaterOrEqual(t, System().Monotonic()-began, 10*time.Millisecond)
	require.True(t, Pause(t.Context(), -time.Second), "there is nothing to wait for")

	ended, end := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, end)
	require.False(t, Pause(ended, time.Hour))
	require.False(t, Pause(ended, 0), "it has ended already")
}

func TestAPauseSaysThatItWasWoken(t *testing.T) {
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	require.True(t, PauseOr(t.Context(), time.Hour, wake))
	require.False(t, PauseOr(t.Context(), time.Millisecond, wake), "its time has passed")
	ended, end := context.WithCancel(t.Context())
	end()
	require.False(t, PauseOr(ended, time.Hour, wake))
}
