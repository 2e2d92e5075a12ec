package census

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// fleet are takers of one database, each with a store of its own.
func fleet(t *testing.T, n int) []*Taker {
	t.Helper()
	db := testdb.New(t)
	takers := make([]*Taker, n)
	for i := range takers {
		st, err := store.Open(store.Config{Database: db})
		require.NoError(t, err)
		takers[i] = New(st)
	}
	return takers
}

func TestOneProcessCountsForAll(t *testing.T) {
	takers := fleet(t, 5)
	first, now, err := takers[0].Now(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, now, first.At, time.Minute)
	var wg sync.WaitGroup
	for _, taker := range takers {
		wg.Go(func() {
			c, _, err := taker.Now(t.Context())
			if err != nil || !c.At.Equal(first.At) {
				t.Errorf("it counted again at %v (%v)", c.At, err)
			}
		})
	}
	wg.Wait()
}

// A database restored to another machine may have a clock that is behind.
func TestACensusOfTheFutureIsReplaced(t *testing.T) {
	taker := fleet(t, 1)[0]
	first, now, err := taker.Now(t.Context())
	require.NoError(t, err)
	ahead := first
	ahead.At, ahead.Seats = now.Add(time.Hour), 7
	require.NoError(t, taker.store.KeepCensus(t.Context(), ahead))
	seen, now, err := taker.Now(t.Context())
	require.NoError(t, err)
	require.Zero(t, seen.Seats)
	kept, err := taker.store.ReadCensus(t.Context())
	require.NoError(t, err)
	require.Equal(t, seen.At, kept.At.UTC())
	require.False(t, kept.At.After(now))

	ahead.At = now.Add(store.ClockSlack / 2)
	require.True(t, taker.fresh(ahead), "the clocks of two processes differ a little")
	ahead.At = now.Add(time.Hour)
	require.False(t, taker.fresh(ahead))
}

func TestWhatTakesLongIsCountedLessOften(t *testing.T) {
	taker := fleet(t, 1)[0]
	first, _, err := taker.Now(t.Context())
	require.NoError(t, err)
	first.At, first.Took = taker.store.Clock.Now(), 2*time.Minute
	taker.store.Clock.Skip(restFactor*first.Took - time.Minute)
	require.True(t, taker.fresh(first))
	taker.store.Clock.Skip(2 * time.Minute)
	require.False(t, taker.fresh(first))
}

func TestWhileOneCountsTheOthersHaveItsLastNumbers(t *testing.T) {
	takers := fleet(t, 2)
	first, _, err := takers[0].Now(t.Context())
	require.NoError(t, err)
	takers[1].store.Clock.Skip(2 * Every)
	mine, err := takers[0].store.Turns.Take(t.Context(), turn, takers[0].holder, time.Hour, false)
	require.NoError(t, err)
	require.True(t, mine)
	seen, _, err := takers[1].Now(t.Context()) // must read the clock first
	require.NoError(t, err)
	require.Equal(t, first.At, seen.At.UTC(), "it waits for its turn")

	require.NoError(t, takers[0].store.Turns.Leave(t.Context(), turn, takers[0].holder))
	seen, _, err = takers[1].Now(t.Context())
	require.NoError(t, err)
	require.True(t, seen.At.After(first.At), "the numbers were old, and it was its turn")
	kept, err := takers[0].store.ReadCensus(t.Context())
	require.NoError(t, err)
	require.Equal(t, seen.At, kept.At.UTC())
}
