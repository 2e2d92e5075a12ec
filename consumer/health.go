package consumer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// health knows whether the database answers. After an outage it lets this process write its own
// pings and ends before it looks for more work.
type health struct {
	trust *claim.Trust // when a lapsed lease may be taken over

	mu     sync.Mutex
	down   bool
	era    context.Context // ends when the database answers again after an outage
	endEra context.CancelFunc
	owes   chan struct{} // closed by the first pings after an outage; nil = nothing is owed
}

func (h *health) init(trust *claim.Trust) {
	h.trust = trust
	h.era, h.endEra = context.WithCancel(context.Background())
}

// report takes the error of a call; nil means that the server answered.
func (h *health) report(c *Consumer, err error) {
	switch {
	case err == nil:
		h.up(c)
	case store.Outage(err):
		h.trust.Failed()
		h.mu.Lock()
		was := h.down
		h.down = true
		h.mu.Unlock()
		if !was {
			c.log.Warn().Err(err).Msg("the database cannot be reached; work goes on when it is back")
			c.emit(Event{Kind: EventOutage, Reason: err.Error()})
		}
	}
}

func (h *health) up(c *Consumer) {
	h.trust.Answered()
	h.mu.Lock()
	was := h.down
	h.down = false
	if was {
		h.endEra()
		h.era, h.endEra = context.WithCancel(context.Background())
		if h.owes == nil {
			h.owes = make(chan struct{})
		}
	}
	h.mu.Unlock()
	if was {
		notify(c.pingNow)
		c.store.Forget()
		c.log.Info().Msg("the database is back")
		c.emit(Event{Kind: EventRestored})
		c.wake.now()
		notify(c.leaseHint)
	}
}

func (h *health) isDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// current returns the era since the last outage. The end of the next outage ends it.
func (h *health) current() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.era
}

// call returns the context of a call that is repeated until it is answered. When another call
// learns that the database is back, this one ends as soon as it has waited for staleCall. Its
// connection may be dead, so that the answer never arrives.
func (h *health) call(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(ctx, limit)
	began := clock.System().Monotonic() // as real as the timeout
	stop := context.AfterFunc(h.current(), func() {
		clock.Pause(call, staleCall-(clock.System().Monotonic()-began))
		cancel()
	})
	return call, func() {
		stop()
		cancel()
	}
}

// staleCall is how long a call may wait although others are answered. A server under load
// answers late, and each cancelled and repeated call adds to the load.
const staleCall = time.Second

// pinged records that all due pings have been answered.
func (h *health) pinged() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owes != nil && !h.down {
		select {
		case <-h.owes:
		default:
			close(h.owes)
		}
	}
}

func (h *health) owed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owes
}

func (h *health) settled(owed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owes == owed {
		h.owes = nil
	}
}

// ownFirst lets this process's own leases go first after an outage. The leases of others are as
// old, and a process that looks for work before all have pinged takes it from healthy
// workers. It waits no longer than other processes wait for this one.
func (c *Consumer) ownFirst(ctx context.Context) error {
	h := &c.health
	if h.isDown() { // a question that changes nothing; its answer wakes pings and ends
		if _, err := c.nextLapse(ctx); err != nil {
			return err
		}
	}
	owed := h.owed()
	if owed == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, claim.Notice)
	defer cancel()
	select {
	case <-owed:
	case <-ctx.Done():
	}
	_ = c.ends.Wait(ctx) // an end that a transaction holds must not delay this
	h.settled(owed)
	return nil
}

// backOff is the waiting between tries against a server that does not answer: from
// 50 ms, doubling to 2 s, with jitter. It ends as soon as another call is answered.
type backOff struct {
	d   time.Duration
	h   *health
	era context.Context // when the last try began
}

func (c *Consumer) newBackOff() *backOff {
	b := &backOff{h: &c.health}
	b.reset()
	return b
}

// reset begins anew, after a try that was answered.
func (b *backOff) reset() { b.d, b.era = shortestBackOff, b.h.current() }

const (
	shortestBackOff = 50 * time.Millisecond
	longestBackOff  = 2 * time.Second
)

func (b *backOff) sleep(ctx context.Context) {
	d := b.d/2 + rand.N(b.d)
	b.d = min(2*b.d, longestBackOff)
	if clock.PauseOr(ctx, d, b.era.Done()) {
		b.d = shortestBackOff
	}
	b.era = b.h.current()
}
