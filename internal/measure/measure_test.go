package measure

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFamilyHasAtMostAHundredLabelsAndOther(t *testing.T) {
	var f Family[int]
	first := f.Of("000")
	for i := range 300 {
		f.Of(fmt.Sprintf("%03d", i))
	}
	require.Same(t, first, f.Of("000"))
	require.Same(t, f.Of(Other), f.Of("200"))
	var labels []string
	for label := range f.All() {
		labels = append(labels, label)
	}
	require.Len(t, labels, Most+1)
	require.IsIncreasing(t, labels)
}

func TestAHistogramCountsWhatIsNotGreaterThanEachBound(t *testing.T) {
	var s Sizes
	for _, n := range []int{1, 2, 3, 5000} {
		s.Observe(n)
	}
	d := s.Read()
	require.EqualValues(t, 4, d.Count)
	require.InDelta(t, 5006, d.Sum, 0)
	require.EqualValues(t, 1, d.Buckets[1])
	require.EqualValues(t, 2, d.Buckets[2])
	require.EqualValues(t, 3, d.Buckets[5])
	require.EqualValues(t, 3, d.Buckets[2000])

	var l Durations
	l.Observe(-time.Second) // clocks differ
	l.Observe(100 * time.Millisecond)
	l.Observe(24 * time.Hour)
	e := l.Read()
	require.EqualValues(t, 3, e.Count)
	require.EqualValues(t, 1, e.Buckets[0.001])
	require.EqualValues(t, 2, e.Buckets[0.1])
	require.EqualValues(t, 2, e.Buckets[7200])
	require.InDelta(t, 86400.1, e.Sum, 1e-9)
}

func TestCountersOfAWorkerStayWhenItLeaves(t *testing.T) {
	var s Set
	leave := s.Enter(func() Worker { return Worker{Workers: 1, Fetches: 5, Running: 2} })
	other := s.Enter(func() Worker { return Worker{Workers: 1, Fetches: 3, Slots: 7} })
	require.Equal(t, Worker{Workers: 2, Fetches: 8, Running: 2, Slots: 7}, s.Workers())
	leave()
	require.Equal(t, Worker{Workers: 1, Fetches: 8, Slots: 7}, s.Workers())
	other()
	require.Equal(t, Worker{Fetches: 8}, s.Workers())
}

func TestAllOfAProcessShareASetWhileSomebodyUsesIt(t *testing.T) {
	key := new(int)
	s := Of(key)
	s.Claimed(3, 2)
	require.Same(t, s, Of(key))
	require.NotSame(t, s, Of(new(int)))
	runtime.KeepAlive(s)
	s = nil
	require.Eventually(t, func() bool {
		runtime.GC()
		sets.Lock()
		defer sets.Unlock()
		_, there := sets.of[key]
		return !there
	}, 30*time.Second, time.Millisecond, "what nobody uses stays in memory")
	require.Zero(t, Of(key).Won.Load())
}

func TestCountingIsSafeAtOnce(t *testing.T) {
	var s Set
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 1000 {
				typ := s.Types.Of(fmt.Sprint((i + n) % 3))
				typ.Ran.Observe(time.Millisecond)
				typ.Ended.Of(Success).Add(1)
			}
		})
	}
	wg.Wait()
	sum, ran := int64(0), uint64(0)
	for _, typ := range s.Types.All() {
		sum += typ.Ended.Of(Success).Load()
		ran += typ.Ran.Read().Count
	}
	require.EqualValues(t, 8000, sum)
	require.EqualValues(t, 8000, ran)
}

// What one execution costs: two histograms, an outcome.
func BenchmarkExecution(b *testing.B) {
	var s Set
	typ := s.Types.Of("t")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			typ.Delay.Observe(3 * time.Millisecond)
			typ.Ran.Observe(20 * time.Millisecond)
			typ.Ended.Of(Success).Add(1)
		}
	})
}
