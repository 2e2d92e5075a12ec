// Package census has one process count for the fleet. To count tasks is expensive and everybody wants
// the numbers, so they lie in one document:
//
//	a scrape ─▶ the document is fresh ─▶ its numbers
//	         └▶ it is old ─▶ nobody else counts (a turn) ─▶ count ─▶ store ─▶ its numbers
//
// Whoever asks counts. So a fleet that nobody scrapes pays nothing, and an autoscaler sees due tasks
// while no worker runs.
package census

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

const (
	// Every is how old the numbers are at most, where somebody asks as often, and to count is quick.
	Every = 15 * time.Second
	// restFactor is how many times longer the fleet rests than it counts. Where queues are long, a census
	// takes seconds, and the database works for it.
	restFactor = 20
	// patience bounds one census. It is shorter than Prometheus waits for a scrape.
	patience = 8 * time.Second

	turn = "census"
)

// Taker reads the census of a fleet, and takes it when its turn comes. Make one with [New]. It is safe for
// concurrent use.
type Taker struct {
	store  *store.Store
	holder string
	mu     sync.Mutex // held while it asks
}

// New makes a taker. It does no I/O.
func New(st *store.Store) *Taker { return &Taker{store: st, holder: rand.Text()} }

// Now returns the newest census, which may be older than [Every] while another process counts, and the
// database's time. A zero census was never taken.
func (t *Taker) Now(ctx context.Context) (store.Census, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.store.Prepare(ctx); err != nil {
		return store.Census{}, time.Time{}, err
	}
	last, err := t.store.ReadCensus(ctx)
	if err == nil && !t.fresh(last) {
		last, err = t.take(ctx, last)
	}
	return last, t.store.Clock.Now(), err
}

// fresh says whether a census is still to be used. One of the future is not: the database's clock was set back.
func (t *Taker) fresh(c store.Census) bool {
	age := t.store.Clock.Now().Sub(c.At)
	return age > -store.ClockSlack && age < max(Every, restFactor*c.Took)
}

// take counts if it is this process's turn; otherwise last is what there is.
func (t *Taker) take(ctx context.Context, last store.Census) (store.Census, error) {
	mine, err := t.store.Turns.Take(ctx, turn, t.holder, 2*patience, false)
	if err != nil || !mine {
		return last, err
	}
	defer func() { // else it lapses
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = t.store.Turns.Leave(ctx, turn, t.holder)
	}()
	// Somebody may have counted while this process asked for the turn.
	if last, err = t.store.ReadCensus(ctx); err != nil || t.fresh(last) {
		return last, err
	}
	c, err := t.store.TakeCensus(ctx, last)
	if err != nil {
		return last, err
	}
	return c, t.store.KeepCensus(ctx, c)
}
