package consumer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// health knows whether the database answers, and since when it does again.
type health struct {
	mu       sync.Mutex
	down     bool
	restored clock.Instant
	ever     bool // there was an outage, or a jump of the clock, or another primary
	primary  string
	reread   bool // the clock is to be read again
	jumped   bool // the last disturbance was a jump of a clock
}

// report takes the error of a call; nil means that the server answered.
func (h *health) report(c *Consumer, err error) {
	switch {
	case err == nil:
		h.up(c)
	case store.Outage(err):
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
	h.mu.Lock()
	was := h.down
	h.down = false
	h.mu.Unlock()
	if was {
		h.disturb(c, false)
		c.store.Forget()
		c.log.Info().Msg("the database is back")
		c.emit(Event{Kind: EventRestored})
		c.wake.now()
		token(c.stirred)
	}
}

// disturb notes that leases may have lapsed although their workers are well: nobody
// pre-empts for a while, so that the owners can ping first.
func (h *health) disturb(c *Consumer, jumped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ever, h.restored, h.reread, h.jumped = true, clock.Read(c.cfg.Clock), true, jumped
}

// needsClock says whether a disturbance asks for a new reading of the clock.
func (h *health) needsClock() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reread && !h.down
}

func (h *health) clockRead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reread = false
}

// quiet says whether things have been in order for a ping interval; after a jump of a
// clock, for a whole lease.
func (h *health) quiet(c *Consumer, interval, lease time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := interval
	if h.jumped {
		d = lease
	}
	return !h.down && (!h.ever || h.restored.SinceMonotonic(c.cfg.Clock) >= d)
}

// samePrimary notes the primary's address; a change is a disturbance.
func (h *health) samePrimary(c *Consumer, primary string) {
	h.mu.Lock()
	changed := h.primary != "" && h.primary != primary
	h.primary = primary
	h.mu.Unlock()
	if changed {
		c.store.Clock.Doubt()
		h.disturb(c, false)
	}
}

// backOff is the waiting between tries against a server that does not answer: from
// 50 ms, doubling to 2 s, with jitter.
type backOff struct{ d time.Duration }

func newBackOff() *backOff { return &backOff{d: 50 * time.Millisecond} }

func (b *backOff) sleep(ctx context.Context) {
	d := b.d/2 + rand.N(b.d)
	b.d = min(2*b.d, 2*time.Second)
	clock.Pause(ctx, d)
}
