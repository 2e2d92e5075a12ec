package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func held(types ...*handler) (xs []*execution) {
	for _, h := range types {
		xs = append(xs, &execution{h: h})
	}
	return xs
}

func TestWaitingExecutionsStartInOrderAndNeverMoreThanTheSlots(t *testing.T) {
	h, typ := newHoldings(), &handler{typ: "a"}
	xs := held(typ, typ, typ)
	h.add(xs, 0, time.Time{})
	require.Same(t, xs[0], h.next(2, 0))
	require.Same(t, xs[1], h.next(2, 0))
	require.Nil(t, h.next(2, 0), "all slots are taken")
	require.False(t, h.handlerReturned(xs[1]))
	require.Same(t, xs[2], h.next(2, 0))
	require.Equal(t, counts{buffered: 0, running: 2, all: 3, started: 3}, h.count())
	h.remove(xs[1])
	require.Equal(t, 2, h.count().all, "held until its end is written")
}

func TestATypesRoomCountsWhatWaitsAndWhatRuns(t *testing.T) {
	h, typ, other := newHoldings(), &handler{typ: "a", limit: 2}, &handler{typ: "b"}
	require.Equal(t, largeBatch, h.room("b", 0))
	xs := held(typ, typ, other)
	h.add(xs, 0, time.Time{})
	require.Zero(t, h.room("a", 2))
	x := h.next(10, 0)
	require.Zero(t, h.room("a", 2))
	require.True(t, h.handlerReturned(x), "its type was at the limit")
	require.Equal(t, 1, h.room("a", 2))
	x = h.next(10, 0)
	require.False(t, h.handlerReturned(x), "its type was below the limit already")
	require.False(t, h.handlerReturned(h.next(10, 0)), "its type has no limit")
}

func TestWhatNeverStartedIsTakenBackOnce(t *testing.T) {
	h, typ := newHoldings(), &handler{typ: "a", limit: 5}
	xs := held(typ, typ, typ)
	h.add(xs, 0, time.Time{})
	running := h.next(1, 0)
	require.False(t, h.unbuffer(running), "it runs")
	require.True(t, h.unbuffer(xs[1]))
	require.False(t, h.unbuffer(xs[1]))
	require.Equal(t, []*execution{xs[2]}, h.takeBuffer())
	require.Empty(t, h.takeBuffer())
	require.Equal(t, 4, h.room("a", 5), "only the running one counts")
}

func TestAStallIsWhenSomethingWaitsAndNothingStarts(t *testing.T) {
	h, typ := newHoldings(), &handler{typ: "a"}
	require.False(t, h.stalled(time.Hour, time.Second), "nothing waits")
	h.add(held(typ, typ), 10*time.Second, time.Time{})
	require.False(t, h.stalled(11*time.Second, time.Second))
	require.True(t, h.stalled(12*time.Second, time.Second))
	h.next(1, 12*time.Second)
	require.False(t, h.stalled(13*time.Second, time.Second))
	require.True(t, h.stalled(14*time.Second, time.Second))
}

func TestWhoWaitsForRoomIsToldOnceFewWait(t *testing.T) {
	h, typ := newHoldings(), &handler{typ: "a"}
	h.add(held(typ, typ, typ, typ), 0, time.Time{})
	ch := h.below(2)
	h.next(4, 0)
	require.False(t, woken(ch), "three wait")
	h.next(4, 0)
	require.True(t, woken(ch), "two wait")

	ch = h.below(5)
	require.False(t, woken(ch), "nothing has changed since")
	h.next(4, 0)
	require.True(t, woken(ch))
}

func TestWhoWaitsForAChangeHearsOfIt(t *testing.T) {
	h, typ := newHoldings(), &handler{typ: "a"}
	xs := held(typ)
	h.add(xs, 0, time.Time{})
	for _, change := range []func(){
		func() { h.next(1, 0) },
		func() { h.handlerReturned(xs[0]) },
		func() { h.remove(xs[0]) },
	} {
		ch := h.change()
		require.False(t, woken(ch))
		change()
		require.True(t, woken(ch))
	}
}
