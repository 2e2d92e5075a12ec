package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/fetchplan"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func held(types ...*handler) (xs []*execution) {
	for _, h := range types {
		xs = append(xs, &execution{h: h})
	}
	return xs
}

func TestWaitingExecutionsStartInOrderAndNeverMoreThanTheSlots(t *testing.T) {
	h, typ := newHoldings(2), &handler{typ: "a"}
	xs := held(typ, typ, typ)
	h.add(xs, 0, time.Time{})
	require.Same(t, xs[0], h.next(0))
	require.Same(t, xs[1], h.next(0))
	require.Nil(t, h.next(0), "all slots are taken")
	gone(t, h, xs[1], false)
	require.Same(t, xs[2], h.next(0))
	require.Equal(t, counts{buffered: 0, running: 2, all: 3, started: 3}, h.count())
	h.remove(xs[1])
	require.Equal(t, 2, h.count().all, "held until its end is written")
}

func TestATypesRoomCountsWhatWaitsAndWhatRuns(t *testing.T) {
	h, typ, other := newHoldings(10), &handler{typ: "a", limit: 2}, &handler{typ: "b"}
	require.Equal(t, fetchplan.LargeBatch, h.room("b", 0))
	xs := held(typ, typ, other)
	h.add(xs, 0, time.Time{})
	require.Zero(t, h.room("a", 2))
	x := h.next(0)
	require.Zero(t, h.room("a", 2))
	gone(t, h, x, true) // its type was at the limit
	require.Equal(t, 1, h.room("a", 2))
	x = h.next(0)
	gone(t, h, x, false)         // its type was below the limit already
	gone(t, h, h.next(0), false) // its type has no limit
}

func TestOnlyAPromiseThatFreesAPlaceReopensItsType(t *testing.T) {
	single, free := &handler{typ: "a", limit: 1}, &handler{typ: "b"}
	for name, c := range map[string]struct {
		promised []*handler
		won      []*execution
		reopened bool
	}{
		"lost":                 {promised: []*handler{free, single}, reopened: true},
		"won":                  {promised: []*handler{single}, won: held(single)},
		"below the limit":      {promised: []*handler{{typ: "c", limit: 2}}},
		"of types without one": {promised: []*handler{free, free}},
		"nothing":              {},
	} {
		h := newHoldings(2)
		var told []bool
		h.released = func(reopened bool) { told = append(told, reopened) }
		release := h.promise(c.promised)
		require.Equal(t, len(c.promised), h.count().buffered, name)
		h.add(c.won, 0, time.Time{})
		release()
		require.Equal(t, len(c.won), h.count().buffered, name)
		require.Equal(t, []bool{c.reopened}, told, name)
	}
}

func TestWhatNeverStartedIsTakenBackOnce(t *testing.T) {
	h, typ := newHoldings(1), &handler{typ: "a", limit: 5}
	xs := held(typ, typ, typ)
	h.add(xs, 0, time.Time{})
	running := h.next(0)
	require.False(t, unbuffers(h, running), "it runs")
	require.True(t, unbuffers(h, xs[1]))
	require.False(t, unbuffers(h, xs[1]))
	require.Equal(t, []*execution{xs[2]}, h.takeBuffer())
	require.Empty(t, h.takeBuffer())
	require.Equal(t, 4, h.room("a", 5), "only the running one counts")
}

func TestAStallIsWhenSomethingWaitsAndNothingStarts(t *testing.T) {
	h, typ := newHoldings(1), &handler{typ: "a"}
	require.False(t, h.stalled(time.Hour, time.Second), "nothing waits")
	h.add(held(typ, typ), 10*time.Second, time.Time{})
	require.False(t, h.stalled(11*time.Second, time.Second))
	require.True(t, h.stalled(12*time.Second, time.Second))
	h.next(12 * time.Second)
	require.False(t, h.stalled(13*time.Second, time.Second))
	require.True(t, h.stalled(14*time.Second, time.Second))
}

func TestWhoWaitsForRoomIsToldOnceFewWait(t *testing.T) {
	h, typ := newHoldings(4), &handler{typ: "a"}
	h.add(held(typ, typ, typ, typ), 0, time.Time{})
	ch := h.below(2)
	h.next(0)
	require.False(t, woken(ch), "three wait")
	h.next(0)
	require.True(t, woken(ch), "two wait")

	ch = h.below(5)
	require.False(t, woken(ch), "nothing has changed since")
	h.next(0)
	require.True(t, woken(ch))
}

func TestWhoWaitsForAChangeHearsOfIt(t *testing.T) {
	h, typ := newHoldings(1), &handler{typ: "a"}
	xs := held(typ)
	h.add(xs, 0, time.Time{})
	for _, change := range []func(){
		func() { h.next(0) },
		func() { h.handlerReturned(xs[0], false, nil) },
		func() { h.remove(xs[0]) },
	} {
		ch := h.change()
		require.False(t, woken(ch))
		change()
		require.True(t, woken(ch))
	}
}

// unbuffers is for an execution whose type is not at its limit.
func unbuffers(h *holdings, x *execution) bool {
	taken, reopened := h.unbuffer(x)
	return taken && !reopened
}

// gone is for a handler that has returned.
func gone(t *testing.T, h *holdings, x *execution, reopened bool) {
	t.Helper()
	got, _ := h.handlerReturned(x, false, nil)
	require.Equal(t, reopened, got)
}

// passingOn are executions of a type whose permits pass on, of tasks with a priority.
func passingOn(h *handler, priority, n int) (xs []*execution) {
	for range n {
		xs = append(xs, &execution{h: h, task: &model.Task{Priority: priority}, permits: []lifecycle.Permit{{Name: "p"}}})
	}
	return xs
}

func others(h *handler, priority, n int) (xs []*execution) {
	for range n {
		xs = append(xs, &execution{h: h, task: &model.Task{Priority: priority}})
	}
	return xs
}

func TestASlotIsKeptForWhoeverGetsThePermitNext(t *testing.T) {
	h, typ := newHoldings(1), &handler{typ: "a"}
	freed := 0
	h.released = func(bool) { freed++ }
	xs := passingOn(typ, 5, 2)
	h.add(xs[:1], 0, time.Time{})
	x := h.next(0)
	h.handlerReturned(x, true, nil)
	require.Equal(t, 1, h.count().running)
	h.add(xs[1:], 0, time.Time{})
	require.Nil(t, h.next(0), "it is kept")
	h.keepNoLonger(x)
	require.Equal(t, 1, freed)
	require.Same(t, xs[1], h.next(0))
	h.remove(x)
	require.Equal(t, 1, freed, "it kept none")

	h.handlerReturned(xs[1], true, nil)
	require.Zero(t, h.reserve(typ, 1), "it is kept")
	require.True(t, h.handOver(xs[1]))
	h.remove(xs[1])
	require.Equal(t, counts{running: 1, started: 2}, h.count(), "it is whose it was handed to")
	h.release(typ, 1)
	require.Equal(t, 2, freed)
	require.Equal(t, 1, h.reserve(typ, 3))
	require.Equal(t, counts{running: 1, started: 2}, h.count())
}

func TestASlotIsHandedOverAlsoBeforeTheHandlerIsSeenToHaveReturned(t *testing.T) {
	h, typ := newHoldings(1), &handler{typ: "a"}
	xs := passingOn(typ, 5, 1)
	h.add(xs, 0, time.Time{})
	h.next(0)
	require.True(t, h.handOver(xs[0]))
	h.remove(xs[0])
	h.handlerReturned(xs[0], true, nil)
	require.Equal(t, 1, h.count().running)
	h.release(typ, 1)
	require.Zero(t, h.count().running)
}

func TestASlotIsNotKeptForAnExecutionThatIsForgotten(t *testing.T) {
	h, typ := newHoldings(1), &handler{typ: "a"}
	xs := passingOn(typ, 5, 1)
	h.add(xs, 0, time.Time{})
	h.next(0)
	h.remove(xs[0]) // its end was refused, say
	require.Equal(t, 1, h.count().running, "its handler has not returned")
	h.handlerReturned(xs[0], true, nil)
	require.Zero(t, h.count().running)
}

func TestALimitedTypeKeepsHalfOfTheSlotsBesideOthersAndNoneBesideGreaterPriorities(t *testing.T) {
	limited, other := &handler{typ: "a"}, &handler{typ: "b"}
	for _, c := range []struct {
		running, waiting, priority int
		kept                       bool
	}{
		{running: 4, kept: true},
		{running: 3, waiting: 1, priority: 5},
		{running: 2, waiting: 1, priority: 5, kept: true},
		{running: 2, waiting: 1, priority: 6},
	} {
		h := newHoldings(4)
		xs := passingOn(limited, 5, c.running)
		h.add(xs, 0, time.Time{})
		for range xs {
			h.next(0)
		}
		h.add(others(other, c.priority, c.waiting), 0, time.Time{})
		h.handlerReturned(xs[0], true, nil)
		require.Equal(t, c.kept, h.handOver(xs[0]), "%+v", c)
	}
}

func TestASlotThatFreesGoesToALimitedTypeThatLacksOne(t *testing.T) {
	limited, other := &handler{typ: "a", limit: 2}, &handler{typ: "b"}
	h := newHoldings(4)
	xs := others(other, 5, 8)
	h.add(xs, 0, time.Time{})
	for range 4 {
		h.next(0)
	}
	for i, given := range []bool{true, true, false} { // half of the slots, and its own limit
		_, got := h.handlerReturned(xs[i], false, limited)
		require.Equal(t, given, got)
	}
	require.Same(t, xs[4], h.next(0))
	require.Nil(t, h.next(0))
}

func TestWhoHasAPermitStartsBeforeThoseThatWaitForASlot(t *testing.T) {
	limited, other := &handler{typ: "a"}, &handler{typ: "b"}
	h := newHoldings(4)
	waiting, permitted := others(other, 5, 1), passingOn(limited, 5, 2)
	h.add(waiting, 0, time.Time{})
	h.add(permitted, 0, time.Time{})
	require.Same(t, permitted[0], h.next(0))
	require.Same(t, permitted[1], h.next(0))
	require.Same(t, waiting[0], h.next(0))
}

// begin are executions that start between two times.
func begin(h *handler, from, until time.Time, n int) (xs []*execution) {
	for range n {
		xs = append(xs, &execution{h: h, task: &model.Task{Priority: 5}, from: from, until: until})
	}
	return xs
}

func TestASlotIsKeptForAStartWhoseTimeIsToCome(t *testing.T) {
	limited, other := &handler{typ: "a"}, &handler{typ: "b"}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	soon, late := now.Add(time.Second), now.Add(time.Minute)
	h := newHoldings(2)
	freed := 0
	h.released = func(bool) { freed++ }
	running := others(other, 5, 3)
	h.add(running, 0, now)
	h.next(0)
	h.next(0)
	_, given := h.handlerReturned(running[0], false, limited)
	require.True(t, given)
	planned := begin(limited, soon, late, 2)
	h.add(planned, 0, now)
	require.Equal(t, 1, h.keepForStart(limited, 1))
	require.Zero(t, h.keepForStart(limited, 0))
	require.Nil(t, h.next(0), "the free slot is kept")
	require.Equal(t, counts{buffered: 1, running: 2, all: 5, planned: 1, started: 2}, h.count())

	h.startDue(soon, 0, func() {})
	require.Same(t, planned[0], h.next(0), "it has a slot")
	require.Nil(t, h.next(0), "the other has none")
	require.Equal(t, 2, h.count().running)
	gone(t, h, planned[0], false)
	require.Same(t, planned[1], h.next(0), "its start passes, so it goes first")
	gone(t, h, planned[1], false)
	require.Same(t, running[2], h.next(0))
	require.Zero(t, h.count().planned)
	require.False(t, h.ofType(limited.typ))
	require.Zero(t, freed)
}

func TestAStartIsNotKeptWaitingByOneWithoutASlot(t *testing.T) {
	limited, second := &handler{typ: "a"}, &handler{typ: "b"}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	h := newHoldings(1)
	require.Equal(t, 1, h.reserve(second, 1))
	h.add(begin(limited, now.Add(time.Second), now.Add(time.Minute), 1), 0, now)
	kept := begin(second, now.Add(2*time.Second), now.Add(time.Minute), 1)
	h.add(kept, 0, now)
	require.Equal(t, 1, h.keepForStart(second, 1))
	h.startDue(now.Add(2*time.Second), 0, func() {})
	require.Same(t, kept[0], h.next(0))
	require.Equal(t, 1, h.count().buffered)
}

func TestTheSlotOfAStartThatIsGivenUpIsFreedWhenItsEndIsWritten(t *testing.T) {
	for _, all := range []bool{false, true} {
		limited, other := &handler{typ: "a"}, &handler{typ: "b"}
		now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		h := newHoldings(1)
		freed := 0
		h.released = func(bool) { freed++ }
		require.Equal(t, 1, h.reserve(limited, 1))
		planned := begin(limited, now.Add(time.Second), now.Add(time.Minute), 1)
		h.add(planned, 0, now)
		require.Equal(t, 1, h.keepForStart(limited, 1))
		if all {
			require.Equal(t, planned, h.takeBuffer())
		} else {
			require.True(t, unbuffers(h, planned[0]))
		}
		waiting := others(other, 5, 1)
		h.add(waiting, 0, now)
		require.Nil(t, h.next(0))
		h.remove(planned[0])
		require.Equal(t, 1, freed)
		require.False(t, h.ofType(limited.typ))
		require.Same(t, waiting[0], h.next(0))
	}
}

func TestAFreeSlotIsSetAsideForAStartWhereSlotsAreShort(t *testing.T) {
	limited, other := &handler{typ: "a"}, &handler{typ: "b"}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ running, planned int }{{running: 1, planned: 1}, {running: 3}} {
		h := newHoldings(4)
		h.add(others(other, 5, tc.running), 0, now)
		for range tc.running {
			h.next(0)
		}
		h.add(begin(limited, now.Add(time.Second), now.Add(time.Minute), 1), 0, now)
		require.Equal(t, tc.planned, h.count().planned, "those without a slot")
	}
}
