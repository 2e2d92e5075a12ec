package groupcommit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate lets a test hold each flush and see its batch.
type gate struct {
	batches chan []int
	release chan struct{}
}

func newGate() *gate { return &gate{batches: make(chan []int), release: make(chan struct{})} }

func (g *gate) flush(batch []int) {
	g.batches <- batch
	<-g.release
}

func (g *gate) pass(t *testing.T) []int {
	t.Helper()
	select {
	case b := <-g.batches:
		g.release <- struct{}{}
		return b
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "no batch came")
		return nil
	}
}

func TestALoneItemIsFlushedAtOnce(t *testing.T) {
	g := newGate()
	q := New(10, g.flush)
	require.NoError(t, q.Put(t.Context(), 1))
	require.Equal(t, []int{1}, g.pass(t))
	require.NoError(t, q.Wait(t.Context()))
}

func TestWhatGathersDuringAFlushIsTheNextBatch(t *testing.T) {
	g := newGate()
	q := New(10, g.flush)
	require.NoError(t, q.Put(t.Context(), 0))
	first := <-g.batches // the flush of 0 is under way
	for i := 1; i <= 5; i++ {
		require.NoError(t, q.Put(t.Context(), i))
	}
	require.Equal(t, 6, q.Len())
	g.release <- struct{}{}
	require.Equal(t, []int{0}, first)
	require.Equal(t, []int{1, 2, 3, 4, 5}, g.pass(t), "one batch, in the order in which they were put")
	require.NoError(t, q.Wait(t.Context()))
	require.Zero(t, q.Len())
}

func TestPutBlocksWhileTheQueueIsFull(t *testing.T) {
	g := newGate()
	q := New(2, g.flush)
	require.NoError(t, q.Put(t.Context(), 0))
	<-g.batches
	require.NoError(t, q.Put(t.Context(), 1))
	require.NoError(t, q.Put(t.Context(), 2))

	ctx, cancel := context.WithCancelCause(t.Context())
	blocked := make(chan error, 1)
	go func() { blocked <- q.Put(ctx, 3) }()
	why := errors.New("enough")
	cancel(why)
	require.ErrorIs(t, <-blocked, why)

	go func() { blocked <- q.Put(t.Context(), 4) }()
	g.release <- struct{}{}
	got := g.pass(t)
	require.NoError(t, <-blocked)
	require.NoError(t, closeWith(t, q, g, &got))
	require.Equal(t, []int{1, 2, 4}, got, "3 was given up and is never flushed")
}

// closeWith closes the queue while passing the remaining batches through the gate.
func closeWith(t *testing.T, q *Queue[int], g *gate, got *[]int) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- q.Close(t.Context()) }()
	for {
		select {
		case b := <-g.batches:
			*got = append(*got, b...)
			g.release <- struct{}{}
		case err := <-done:
			return err
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	g := newGate()
	q := New(1, g.flush)
	require.NoError(t, q.Put(t.Context(), 0))
	<-g.batches
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, q.Wait(ctx), context.Canceled)
	g.release <- struct{}{}
	require.NoError(t, q.Wait(t.Context()))
}

func TestCloseRefusesNewItemsAndFlushesTheOld(t *testing.T) {
	g := newGate()
	q := New(1, g.flush)
	require.NoError(t, q.Put(t.Context(), 0))
	<-g.batches
	require.NoError(t, q.Put(t.Context(), 1))
	blocked := make(chan error, 1)
	go func() { blocked <- q.Put(t.Context(), 2) }()

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, q.Close(ended), context.Canceled, "0 and 1 are not flushed yet")
	require.ErrorIs(t, <-blocked, ErrClosed)
	require.ErrorIs(t, q.Put(t.Context(), 3), ErrClosed)

	g.release <- struct{}{}
	require.Equal(t, []int{1}, g.pass(t))
	require.NoError(t, q.Close(t.Context()))
}

func TestEveryItemIsFlushedOnceInBatchesOfAtMostMax(t *testing.T) {
	const most, senders, each = 7, 20, 200
	var got []int
	largest := 0
	q := New(most, func(batch []int) {
		largest = max(largest, len(batch))
		got = append(got, batch...)
	})
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if err := q.Put(t.Context(), s*each+i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, q.Close(t.Context()))
	slices.Sort(got)
	require.Len(t, got, senders*each)
	require.Len(t, slices.Compact(got), senders*each)
	require.LessOrEqual(t, largest, most)
}

// unhurried is a queue whose batches gather without a limit of time until they have three
// items.
func unhurried(g *gate) *Queue[int] {
	q := New(10, g.flush)
	q.Gather(3, func() time.Duration { return time.Hour })
	return q
}

func TestABatchGathersUntilItHasEnough(t *testing.T) {
	g := newGate()
	q := unhurried(g)
	for i := range 4 {
		require.NoError(t, q.Put(t.Context(), i))
	}
	first := g.pass(t)
	require.Equal(t, []int{0, 1, 2}, first[:3])
	q.Hurry()
	if len(first) == 3 { // the fourth came when the first three were on their way
		require.Equal(t, []int{3}, g.pass(t))
	}
	require.NoError(t, q.Wait(t.Context()))
}

func TestWhatGatheredDuringAFlushIsFlushedOnceThereIsEnough(t *testing.T) {
	g := newGate()
	q := unhurried(g)
	require.NoError(t, q.Put(t.Context(), 0))
	q.Hurry()
	require.Equal(t, []int{0}, <-g.batches)
	for i := 1; i <= 5; i++ {
		require.NoError(t, q.Put(t.Context(), i))
	}
	g.release <- struct{}{}
	require.Equal(t, []int{1, 2, 3, 4, 5}, g.pass(t))
	require.NoError(t, q.Wait(t.Context()))
}

func TestNobodyWaitsForABatchThatGathers(t *testing.T) {
	for name, end := range map[string]func(*Queue[int]) error{
		"hurry": func(q *Queue[int]) error { q.Hurry(); return nil },
		"wait":  func(q *Queue[int]) error { return q.Wait(t.Context()) },
		"close": func(q *Queue[int]) error { return q.Close(t.Context()) },
	} {
		g := newGate()
		q := unhurried(g)
		q.Hurry() // of nothing says nothing about what follows
		require.NoError(t, q.Put(t.Context(), 0))
		require.NoError(t, q.Put(t.Context(), 1))
		ended := make(chan error, 1)
		go func() { ended <- end(q) }()
		require.Equal(t, []int{0, 1}, g.pass(t), name)
		require.NoError(t, <-ended, name)
		require.NoError(t, q.Wait(t.Context()))
	}
}

func TestABatchGathersNoLongerThanItLingers(t *testing.T) {
	g := newGate()
	q := New(10, g.flush)
	q.Gather(3, func() time.Duration { return time.Millisecond })
	require.NoError(t, q.Put(t.Context(), 0))
	require.Equal(t, []int{0}, g.pass(t))
	require.NoError(t, q.Wait(t.Context()))
}
