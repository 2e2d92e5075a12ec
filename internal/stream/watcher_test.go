package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStreamIsGivenUpWhileABacklogIsDrained(t *testing.T) {
	var b busyness
	for range 100 {
		require.False(t, b.tick(false, true), "it waits for work")
	}
	require.False(t, b.tick(true, false), "one full fetch is no backlog yet")
	require.False(t, b.tick(false, true))
	require.False(t, b.tick(true, false))
	require.True(t, b.tick(true, false))
	b = busyness{}
	for range busyTicks - 1 {
		require.False(t, b.tick(false, false), "no slot is free for a moment")
	}
	require.True(t, b.tick(false, false))
}
