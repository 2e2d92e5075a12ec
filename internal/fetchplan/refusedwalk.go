package fetchplan

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
)

// refusedWalk is for a worker to which more tasks are refused than it can remember and leave
// out of its queries: one that had too many errors with each of a thousand, say. They
// stand at the head of the queue for it, so it walks past them, once in a while; between
// two walks it waits for its poll or for being woken like everybody else. It is pure.
type refusedWalk struct {
	skip  int           // the walk has come so far
	began time.Duration // monotonic: when the walk began; it begins anew at the head after [claim.RefusedFor]
	ended time.Duration // when the last walk came to the end of the queue; 0 = never
}

// offset is how many tasks to skip.
func (b *refusedWalk) offset(now time.Duration) int {
	if now-b.began > claim.RefusedFor {
		b.skip = 0
	}
	return b.skip
}

// learn notes how a fetch of n at the offset went: whether it reached the end of the
// queue, and whether it found only what is refused and cannot be remembered. false says
// that fetching again would find the same.
func (b *refusedWalk) learn(now time.Duration, n int, end, none bool) (goOn bool) {
	switch {
	case end && b.skip > 0:
		b.skip, b.ended = 0, now
		return !none
	case end || !none:
		return true
	case b.skip == 0 && b.ended != 0 && now-b.ended <= claim.RefusedFor:
		return false
	case b.skip == 0:
		b.began = now
	}
	b.skip += n
	return true
}
