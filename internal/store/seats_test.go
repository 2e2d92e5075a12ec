package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func permitted(t *testing.T) *store.Store {
	t.Helper()
	return permittedBy(t, clock.System())
}

func permittedBy(t *testing.T, c clock.Clock) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Database: testdb.New(t), Clock: c})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	return s
}

func TestOfTheSameTypesNoMoreThanTwoWatch(t *testing.T) {
	s, ctx := permitted(t), t.Context()
	types := []string{"a", "b"}
	first, err := s.Seats.Acquire(ctx, types, "first")
	require.NoError(t, err)
	alone, err := s.Seats.Watching(ctx, first)
	require.NoError(t, err)
	require.Equal(t, store.Watching{Watchers: 1}, alone)
	second, err := s.Seats.Acquire(ctx, []string{"b", "a"}, "second")
	require.NoError(t, err)
	third, err := s.Seats.Acquire(ctx, types, "third")
	require.NoError(t, err)
	require.Nil(t, third)
	ranks := map[int]bool{}
	for _, p := range []*store.Seat{first, second} {
		w, err := s.Seats.Watching(ctx, p)
		require.NoError(t, err)
		require.Equal(t, 2, w.Watchers)
		ranks[w.Rank] = true
	}
	require.Len(t, ranks, 2, "each has a rank of its own")
	again, err := s.Seats.Acquire(ctx, types, "first")
	require.NoError(t, err)
	require.Equal(t, first, again, "it has its permit already")

	require.NoError(t, s.Seats.Release(ctx, first, "first"))
	w, err := s.Seats.Watching(ctx, second)
	require.NoError(t, err)
	require.Equal(t, store.Watching{Watchers: 1}, w, "who is left ranks first")
	third, err = s.Seats.Acquire(ctx, types, "third")
	require.NoError(t, err)
	require.NotNil(t, third)
	ok, err := s.Seats.Renew(ctx, first, "first")
	require.NoError(t, err)
	require.False(t, ok, "it is somebody else's now")
	ok, err = s.Seats.Renew(ctx, second, "second")
	require.NoError(t, err)
	require.True(t, ok)
}

func TestNoMoreThanEightWatchInAll(t *testing.T) {
	s, ctx := permitted(t), t.Context()
	var last *store.Seat
	for i := range store.StreamsInAll {
		p, err := s.Seats.Acquire(ctx, []string{fmt.Sprint(i)}, fmt.Sprint(i))
		require.NoError(t, err)
		require.NotNil(t, p)
		last = p
	}
	w, err := s.Seats.Watching(ctx, last)
	require.NoError(t, err)
	require.Equal(t, store.Watching{Watchers: 1, Full: true}, w)
	p, err := s.Seats.Acquire(ctx, []string{"more"}, "more")
	require.NoError(t, err)
	require.Nil(t, p)
	require.NoError(t, s.Seats.Release(ctx, last, fmt.Sprint(store.StreamsInAll-1)))
	p, err = s.Seats.Acquire(ctx, []string{"more"}, "more")
	require.NoError(t, err)
	require.NotNil(t, p, "the permit of its types, which it could not use, was given back")
}

func TestASeatThatNobodyRenewsLapses(t *testing.T) {
	s, ctx := permitted(t), t.Context()
	p, err := s.Seats.Acquire(ctx, []string{"a"}, "dead")
	require.NoError(t, err)
	s.Clock.Skip(store.SeatLease + 1e6)
	q, err := s.Seats.Acquire(ctx, []string{"a"}, "heir")
	require.NoError(t, err)
	require.Equal(t, p, q)
	ok, err := s.Seats.Renew(ctx, p, "dead")
	require.NoError(t, err)
	require.False(t, ok)
}
