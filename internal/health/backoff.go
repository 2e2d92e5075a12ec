package health

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// BackOff is the waiting between tries against a server that does not answer: from
// 50 ms, doubling to 2 s, with jitter. It ends as soon as another call is answered.
type BackOff struct {
	d   time.Duration
	m   *Monitor
	era context.Context // when the last try began
}

const (
	shortestBackOff = 50 * time.Millisecond
	longestBackOff  = 2 * time.Second
)

// NewBackOff returns the waiting of one loop, before its first try.
func (m *Monitor) NewBackOff() *BackOff {
	b := &BackOff{m: m}
	b.Reset()
	return b
}

// Reset begins anew, after a try that was answered.
func (b *BackOff) Reset() { b.d, b.era = shortestBackOff, b.m.current() }

// Sleep waits after a try that was not answered, at most until ctx ends.
func (b *BackOff) Sleep(ctx context.Context) {
	d := b.d/2 + rand.N(b.d)
	b.d = min(2*b.d, longestBackOff)
	if clock.PauseOr(ctx, d, b.era.Done()) {
		b.d = shortestBackOff
	}
	b.era = b.m.current()
}
