package fetchplan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABatchIsWhatStartsWithinHalfASecond(t *testing.T) {
	for _, c := range []struct {
		free, waiting int
		perSecond     float64
		want          int
	}{
		{100, 0, 0, 100},           // nothing is known yet: the free slots
		{100, 0, 100, 100},         // slow tasks: no more than the slots
		{100, 0, 1000, 500},        // quick ones: what half a second takes
		{100, 0, 100_000, 1000},    // never more than a batch
		{100, 240, 1000, 500},      // a whole batch beside the rest of the last
		{100, 40, 0, 60},           // for the slots: what waits already counts
		{100, 260, 1000, 0},        // more than half waits: no small fetches
		{0, 0, 10, 5},              // all slots taken, but they turn over
		{0, 0, 0, 0},               // all slots taken by long ones
		{3, 1, 0, 2},               //
		{1, 0, 0, 1},               // one slot
		{MaxBatch * 2, 0, 0, 1000}, // more slots than a batch
	} {
		require.Equal(t, c.want, toFetch(c.free, c.waiting, c.perSecond), "%+v", c)
	}
}

func TestTheRateIsSmoothedOverASecond(t *testing.T) {
	var r rate
	now, started := time.Second, uint64(0)
	require.Zero(t, r.observe(now, started))
	for range 100 {
		now, started = now+100*time.Millisecond, started+50
		r.observe(now, started)
	}
	require.InDelta(t, 500, r.observe(now, started), 1)
	require.InDelta(t, 500, r.observe(now+10*time.Millisecond, started), 1, "too soon to say")
	require.Less(t, r.observe(now+2*time.Second, started), 1.0, "a long pause is known at once")
}

func TestHandlersThatRanOutOfTasksGetAsManyAsTheyCouldStart(t *testing.T) {
	const slots = 100
	p := New(slots, rand.New(rand.NewPCG(1, 1)))
	returned := func(n int, each time.Duration) {
		for range n {
			p.Ran(each)
		}
	}
	fetched(&p.lead, 0, slots, time.Second, slots)
	returned(slots-1, 100*time.Millisecond)
	require.Zero(t, p.perSecond(Held{}, 1), "one that returned soon says little of those that run")
	returned(1, 100*time.Millisecond)
	require.InDelta(t, 1000, p.perSecond(Held{}, 1), 1)
	require.Equal(t, 500, p.Room(Held{}, true, 1))
	require.Zero(t, p.perSecond(Held{Running: slots}, 1), "all slots are taken")
	returned(20_000, 10*time.Millisecond)
	require.InDelta(t, 10_000, p.perSecond(Held{}, 1), 100, "the last ones count")
	fetched(&p.lead, 500, 499, time.Second, slots)
	require.Zero(t, p.perSecond(Held{}, 1), "they had enough")
	p.Learn(Held{}, Held{Started: slots}, time.Second, slots, false)
	require.Zero(t, p.perSecond(Held{}, 1), "the next tasks may be others")
}
