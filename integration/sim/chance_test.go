package sim

import (
	"math/rand/v2"
	"sync"
	"time"
)

// chance is a source of chance, drawn from a seed.
type chance struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newChance(seed, of uint64) *chance { return &chance{r: rand.New(rand.NewPCG(seed, of))} }

// of says yes in that share of cases.
func (c *chance) of(share float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.Float64() < share
}

func (c *chance) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

func (c *chance) between(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return from + time.Duration(c.r.Int64N(int64(to-from)+1))
}

// seldomLong is mostly within a few milliseconds, and at times much longer.
func (c *chance) seldomLong(long time.Duration) time.Duration {
	if c.of(0.01) {
		return c.between(0, long)
	}
	return c.between(0, 5*time.Millisecond)
}
