package producer

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// pull is what a process remembers between fetches: since when it knows that workers could
// reach the database, and when it looked where.
type pull struct {
	mu      sync.Mutex
	primary string
	since   time.Duration // monotonic: the database has answered all the time; 0 = it did not
	last    time.Duration
	looked  map[string]time.Duration // by worker: when it looked at everybody's audience
}

// Nobody pre-empts within a ping interval after an outage or a change of primary: workers
// may just not have been able to ping. A process that fetches rarely does not know of one.
const (
	pullGap  = 30 * time.Second // between two fetches: what was in between is not known
	wideGap  = 30 * time.Second
	pullScan = 200 // lapsed leases that one fetch looks at
)

// saw notes an answer of the database, and says for how long it has answered.
func (p *pull) saw(now time.Duration, primary string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since == 0 || p.primary != primary || now-p.last > pullGap {
		p.since = max(now, 1)
	}
	p.primary, p.last = primary, now
	return now - p.since
}

// failed notes that the database did not answer.
func (p *pull) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = 0
}

// wide says whether the worker should look at everybody's audience now, beside its labels.
func (p *pull) wide(now time.Duration, workerID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.looked[workerID]; known && now-at < wideGap {
		return false
	}
	if p.looked == nil || len(p.looked) > 10_000 {
		p.looked = map[string]time.Duration{}
	}
	p.looked[workerID] = now
	return true
}

// takeOver takes tasks over lapsed leases, as far as the request goes, and leaves the rest of
// what it found for others, as a consumer does.
func (f *fetch) takeOver(ctx context.Context) error {
	f.p.store.Forget()
	topology, err := f.p.store.Topology(ctx)
	if err != nil {
		return err
	}
	quiet := f.p.pull.saw(f.p.store.Local().Monotonic(), topology.Primary)
	found, err := f.p.store.Lapsed(ctx, f.types, pullScan)
	if err != nil || len(found) == 0 {
		return err
	}
	now := f.p.store.Clock.Now()
	var leaves []store.Write
	for _, t := range found {
		eff, by := f.terms(t)
		if quiet < eff.PingInterval || f.p.store.Clock.Error() > eff.Lease/10 {
			continue
		}
		may := f.left > 0 && !f.p.limits.Limited(t)                     // that needs a grant: it is due again
		d, ok := claim.Lapsed(t, by, may, eff, now, mathrand.Float64()) //nolint:gosec // jitter, not a secret
		switch {
		case !ok:
		case d.Takeover:
			after, err := f.p.store.TakeOver(ctx, d.Write)
			if store.Final(err) && !store.Denied(err) {
				continue // of this task alone: its document has no room, say
			}
			if err != nil {
				return err // won or not: a lease that nobody pings lapses again
			}
			if after != nil {
				f.take(after)
			}
		default:
			leaves = append(leaves, d.Write)
		}
	}
	written, err := f.p.store.Writes(ctx, leaves, 0)
	for i, w := range written {
		after := leaves[i].After
		if w.Applied {
			f.p.limits.Ended(after, model.EndedExecutions(leaves[i].Before, after))
		}
		if w.Applied && after.Status.Ended() {
			f.p.follow.Ended(after)
		}
	}
	return err
}

// newExecID makes a random UUID (version 4).
func newExecID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
