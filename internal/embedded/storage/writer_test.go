package storage

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALongCommandLetsAShortOneIn(t *testing.T) {
	s := open(t, "")
	long := s.Writer(t.Context(), nil)
	long.Long = true
	for i := range minSection {
		require.True(t, long.locked || i == 0)
		require.NoError(t, long.Insert("t.c", doc(i)))
	}
	long.Pause()
	require.True(t, long.locked, "nobody waits")

	another := s.Writer(t.Context(), nil)
	another.Long = true
	done := make(chan error, 2)
	write := func(w *Writer, id string) { done <- errors.Join(w.Insert("t.c", doc(id)), w.Finish()) }
	go write(another, "another")
	go write(s.Writer(t.Context(), nil), "short")
	require.Eventually(t, func() bool { return s.short.Load() == 1 }, 20*time.Second, time.Millisecond)
	long.Pause()
	require.False(t, long.locked)
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	require.NoError(t, long.Insert("t.c", doc("last")))
	require.NoError(t, long.Finish())
	require.Zero(t, s.short.Load())
	require.Equal(t, minSection+3, s.Snapshot().Collection("t.c").Len())
}

func TestAShortSectionIsNotEndedForOthers(t *testing.T) {
	s := open(t, "")
	w := s.Writer(t.Context(), nil)
	w.Long = true
	for i := range minSection - 1 {
		require.NoError(t, w.Insert("t.c", doc(i)))
	}
	s.short.Add(1)
	defer s.short.Add(-1)
	w.Pause()
	require.True(t, w.locked)
	require.NoError(t, w.Finish())
}
