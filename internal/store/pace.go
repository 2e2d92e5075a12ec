package store

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// The time limits of commands. They are short, because an exceeded limit reveals a held document.
// They follow the speed of the server, because a limit that a slow server exceeds makes it
// slower still.
const (
	leastLimit     = 150 * time.Millisecond // of a batch
	leastPart      = 50 * time.Millisecond  // of a part, or of one document alone
	limitPerID     = 100 * time.Microsecond
	limitPerInsert = 500 * time.Microsecond // a new document costs more than an update
	limitPerKB     = 500 * time.Microsecond // of what is encoded
	mostLimit      = 2500 * time.Millisecond
	// A larger insert comes from one sender of many tasks. No other call waits for it.
	sharedInsert = 1000
	ownInsert    = 10 * time.Second
	mostPart     = 500 * time.Millisecond
	mostAlone    = 5 * time.Second // of one document that nothing else waits for
	fewIDs       = 32
	// What is left of a short call: of the commands, and then of each part of the search for a held
	// document.
	commandShare, partShare = 0.75, 0.5
)

// pace knows the longest recent time of commands, separately for few and for many ids. It forgets
// slowly.
type pace struct {
	mu      sync.Mutex
	longest [2]time.Duration
}

func sizeOf(ids int) int {
	if ids <= fewIDs {
		return 0
	}
	return 1
}

func (p *pace) saw(ids int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.longest[sizeOf(ids)]
	*l = max(took, *l-(*l-took)/8)
}

// slowest reports whether the limits cannot become any longer.
func (p *pace) slowest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest[1] >= mostLimit/2
}

// slow records that commands ran out of time although no document was held.
func (p *pace) slow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.longest {
		p.longest[i] = min(max(2*p.longest[i], leastLimit/2), mostLimit/2)
	}
}

// limit is the time limit of a command of so many ids and bytes.
func (p *pace) limit(ids, bytes int, insert bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	each := limitPerID
	switch {
	case insert && ids > sharedInsert:
		return ownInsert
	case insert:
		each = limitPerInsert
	}
	return min(max(leastLimit+max(time.Duration(ids)*each, timeOf(bytes)), 4*p.longest[sizeOf(ids)]), mostLimit)
}

// partLimit is that of a part of a command that ran out of time, or of a probe.
func (p *pace) partLimit(ids, bytes int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(min(max(leastPart+time.Duration(ids)*limitPerID, 2*p.longest[sizeOf(ids)]), mostPart), min(timeOf(bytes), mostLimit))
}

// beforeEnd is the limit, or a share of the time that the caller's call has left if that is less. A held
// document must run out of its limit before the call ends: an answer that does not come in the time of a
// call counts as an outage, and then nothing in the command is known.
func beforeEnd(ctx context.Context, limit time.Duration, share float64) time.Duration {
	end, ends := ctx.Deadline()
	if !ends {
		return limit
	}
	left := end.Sub(clock.System().Now()) // as real as the deadline
	return min(limit, max(time.Duration(share*float64(left)), leastPart))
}

// timeOf is what the server may need for so many bytes.
func timeOf(bytes int) time.Duration { return time.Duration(bytes) * limitPerKB / (1 << 10) }
