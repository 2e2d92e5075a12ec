package consumer

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
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
		{maxBatch * 2, 0, 0, 1000}, // more slots than a batch
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

func TestAnUncontendedWorkerKeepsTheOrderOfTheQueue(t *testing.T) {
	var s spread
	r := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		skip, take := s.look(100, r)
		require.Equal(t, [2]int{0, 100}, [2]int{skip, take})
		s.saw(skip, take, 100)
		s.learn(0, 16)
	}
}

func TestAWorkerThatLostLooksElsewhereAndComesBack(t *testing.T) {
	var s spread
	r := rand.New(rand.NewPCG(1, 1))
	s.learn(3, 16)
	require.Equal(t, 64, s.window)
	skips := map[int]bool{}
	for range 200 {
		skip, take := s.look(100, r)
		require.Equal(t, 100, take)
		require.LessOrEqual(t, skip, maxSkip)
		skips[skip] = true
	}
	require.Greater(t, len(skips), 40, "it chooses among many batches")
	n := 0
	for s.window > 1 {
		s.learn(0, 16)
		n++
	}
	require.Less(t, n, 64, "clean fetches bring it back to the head")
	for range 100 {
		s.learn(1, 16)
	}
	require.Equal(t, maxSpread, s.window)
	_, take := s.look(1000, r)
	require.Equal(t, maxSkip/maxSpread, take, "wide and far at once would walk too many keys")
}

func TestNearTheEndOfTheQueueEverybodyTakesAFew(t *testing.T) {
	s := spread{window: 64}
	r := rand.New(rand.NewPCG(1, 1))
	s.saw(1000, 100, 40)
	for range 100 {
		skip, take := s.look(100, r)
		require.Equal(t, 1040/64, take)
		require.LessOrEqual(t, skip+take, 1040)
	}
	s.saw(1030, 16, 16)
	require.Zero(t, s.depth, "it has grown")
	s.saw(0, 10, 0)
	require.Equal(t, spread{}, s, "an empty queue is nobody's to fight over")
}

// Wherever a worker looks, it comes to the head in a few steps when the queue is short.
func TestLookingPastTheEndComesNearerUntilTheHead(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := spread{window: maxSpread}
		steps := 0
		for ; ; steps++ {
			skip, take := s.look(100, r)
			s.saw(skip, take, 0)
			if skip == 0 {
				break
			}
		}
		require.Less(t, steps, 40)
	}
}

// A fleet on a backlog, in virtual time: a worker fetches, and a moment later claims
// what it saw; whatever somebody claimed in between is lost. Run with -v it prints what
// docs/performance.md quotes: claims attempted for each won, fetches, and what the spread
// costs in order, as the share of pairs of tasks that were claimed the wrong way round
// (0 is exact order, 0.5 none at all).
func TestAFleetDoesNotFight(t *testing.T) {
	for _, c := range []struct {
		workers, backlog, slots int
		attempts, inverted      float64 // at most
	}{
		{1, 20_000, 100, 1, 0},
		{4, 20_000, 100, 1.2, 0.1},
		{16, 20_000, 100, 1.2, 0.3},
		{16, 100_000, 1000, 1.2, 0.2},
		{16, 2_000, 100, 1.35, 0.5}, // a short queue: a few tasks for each
		{64, 40_000, 100, 1.6, 0.25},
		{256, 40_000, 100, 3, 0.25}, // so many cannot keep apart within maxSkip keys
		{1024, 20_000, 100, 9, 0.3},
	} {
		t.Run(fmt.Sprintf("%d workers, %d tasks, batches of %d", c.workers, c.backlog, c.slots), func(t *testing.T) {
			f := newFleet(c.workers, c.backlog, c.slots)
			attempted, fetches := f.run()
			perWin, inverted := float64(attempted)/float64(c.backlog), inversions(f.order)
			t.Logf("%4d workers: %.2f claims attempted for each won, %.3f of the pairs inverted, %.1f tasks a fetch, %.0f index keys walked for each",
				c.workers, perWin, inverted, float64(c.backlog)/float64(fetches), float64(f.walked)/float64(c.backlog))
			require.Len(t, f.order, c.backlog)
			require.LessOrEqual(t, perWin, c.attempts)
			require.LessOrEqual(t, inverted, c.inverted)
		})
	}
}

// inversions is the share of pairs that stand in the wrong order.
func inversions(order []int) float64 {
	var count func(xs, spare []int) int
	count = func(xs, spare []int) int {
		if len(xs) < 2 {
			return 0
		}
		half := len(xs) / 2
		n := count(xs[:half], spare) + count(xs[half:], spare)
		left, right, merged := xs[:half], xs[half:], spare[:0]
		for len(left)+len(right) > 0 {
			if len(right) == 0 || len(left) > 0 && left[0] < right[0] {
				merged, left = append(merged, left[0]), left[1:]
			} else {
				merged, right, n = append(merged, right[0]), right[1:], n+len(left)
			}
		}
		copy(xs, merged)
		return n
	}
	n := len(order)
	return float64(count(slices.Clone(order), make([]int, 0, n))) / (float64(n) * float64(n-1) / 2)
}

func TestInversionsOfKnownOrders(t *testing.T) {
	require.Zero(t, inversions([]int{1, 2, 3, 4}))
	require.InDelta(t, 1, inversions([]int{4, 3, 2, 1}), 0)
	require.InDelta(t, 1.0/6, inversions([]int{1, 3, 2, 4}), 1e-9)
}

// fleet simulates workers on one queue.
type fleet struct {
	random  *rand.Rand
	queue   []int // ids of what nobody has claimed, in order
	claimed map[int]bool
	spreads []spread
	slots   int
	steps   steps
	order   []int // ids as they were won
	walked  int   // index keys, by all fetches
}

// step is what a worker does at a time: claim what it has seen, then fetch again.
type step struct {
	at     float64
	worker int
	seen   []int
	fetch  bool
}

type steps []step

func (s steps) Len() int           { return len(s) }
func (s steps) Less(i, j int) bool { return s[i].at < s[j].at }
func (s steps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)        { *s = append(*s, x.(step)) } //nolint:forcetypeassert // only steps are pushed
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

func newFleet(workers, backlog, slots int) *fleet {
	f := &fleet{random: rand.New(rand.NewPCG(7, uint64(workers))), claimed: map[int]bool{}, spreads: make([]spread, workers), slots: slots}
	for i := range backlog {
		f.queue = append(f.queue, i)
	}
	for w := range workers {
		f.spreads[w].crowd(workers)
		heap.Push(&f.steps, step{at: f.random.Float64() * 0.3, worker: w, fetch: true})
	}
	return f
}

func (f *fleet) run() (attempted, fetches int) {
	for len(f.steps) > 0 {
		s := heap.Pop(&f.steps).(step) //nolint:forcetypeassert // as above
		sp := &f.spreads[s.worker]
		if s.fetch {
			seen, n := f.look(sp)
			fetches += n
			if len(seen) > 0 {
				heap.Push(&f.steps, step{at: s.at + 0.5 + f.random.Float64(), worker: s.worker, seen: seen})
			}
			continue
		}
		lost := 0
		for _, id := range s.seen {
			if f.claimed[id] {
				lost++
				continue
			}
			f.claimed[id] = true
			f.order = append(f.order, id)
		}
		attempted += len(s.seen)
		sp.learn(lost, len(f.spreads))
		heap.Push(&f.steps, step{at: s.at + 0.2 + 1.3*f.random.Float64(), worker: s.worker, fetch: true})
	}
	return attempted, fetches
}

// look is what [Consumer.fetch] does.
func (f *fleet) look(sp *spread) (seen []int, fetches int) {
	left := f.queue[:0]
	for _, id := range f.queue {
		if !f.claimed[id] {
			left = append(left, id)
		}
	}
	f.queue = left
	for {
		skip, take := sp.look(f.slots, f.random)
		from, to := min(skip, len(left)), min(skip+take, len(left))
		sp.saw(skip, take, to-from)
		fetches++
		f.walked += to
		if to > from || skip == 0 {
			return append([]int(nil), left[from:to]...), fetches
		}
	}
}
