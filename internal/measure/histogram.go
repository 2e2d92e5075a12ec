package measure

import (
	"sync/atomic"
	"time"
)

// Distribution is what a histogram has seen.
type Distribution struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64 // by upper bound: how many were not greater
}

// buckets are the counts between bounds, of which there are some, and beyond the last.
type buckets struct {
	n   [maxBounds + 1]atomic.Uint64
	sum atomic.Int64
}

const maxBounds = 18

func (b *buckets) observe(v int64, bounds []int64) {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	b.n[i].Add(1)
	b.sum.Add(v)
}

// read sums up. unit is what the bounds are divided by.
func (b *buckets) read(bounds []int64, unit float64) Distribution {
	d := Distribution{Sum: float64(b.sum.Load()) / unit, Buckets: make(map[float64]uint64, len(bounds))}
	for i, bound := range bounds {
		d.Count += b.n[i].Load()
		d.Buckets[float64(bound)/unit] = d.Count
	}
	d.Count += b.n[len(bounds)].Load()
	return d
}

// Durations is a histogram of durations, which it reads in seconds.
type Durations struct{ buckets }

var durationBounds = []int64{
	int64(time.Millisecond), int64(2 * time.Millisecond), int64(5 * time.Millisecond),
	int64(10 * time.Millisecond), int64(25 * time.Millisecond), int64(50 * time.Millisecond),
	int64(100 * time.Millisecond), int64(250 * time.Millisecond), int64(500 * time.Millisecond),
	int64(time.Second), int64(2500 * time.Millisecond), int64(5 * time.Second),
	int64(10 * time.Second), int64(30 * time.Second), int64(time.Minute),
	int64(5 * time.Minute), int64(30 * time.Minute), int64(2 * time.Hour),
}

// Observe adds one. A negative duration, by clocks that differ, counts as none.
func (d *Durations) Observe(v time.Duration) { d.observe(int64(max(v, 0)), durationBounds) }

// Read returns what was seen.
func (d *Durations) Read() Distribution { return d.read(durationBounds, float64(time.Second)) }

// Sizes is a histogram of numbers of things.
type Sizes struct{ buckets }

var sizeBounds = []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}

// Observe adds one.
func (s *Sizes) Observe(n int) { s.observe(int64(n), sizeBounds) }

// Read returns what was seen.
func (s *Sizes) Read() Distribution { return s.read(sizeBounds, 1) }
