package producer

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// pull is what a process remembers between fetches: what it has seen of the database, and
// when it looked where.
type pull struct {
	store *store.Store
	trust *claim.Trust
	types *claim.TypeScan // of fetches that name none

	news atomic.Uint64 // rises with each task that this process writes

	mu      sync.Mutex
	based   bool                                 // the primary has been asked for once
	scans   map[string]*clock.Pacer              // by types: of the search for lapsed leases
	seekers map[string]*seeker                   // by worker and conditions
	told    [input.MaxPriority + 1]time.Duration // by priority: when the seekers last heard of a task of it
}

// newPull remembers nothing: what was before this process is a reason for doubt, since it
// may live for one fetch only.
func newPull(s *store.Store) *pull {
	p := &pull{store: s, trust: claim.NewTrust(s.Clock, s.Local()), types: claim.NewTypeScan(s.Tasks.NextType, s.Local())}
	p.trust.Doubt()
	return p
}

const (
	pullScan = 200 // lapsed leases that one fetch looks at

	// All fetches of a process together look for lapsed leases as often as one worker does
	// that is alone: four times a second, and less often where the database answers slowly.
	scanPause   = time.Second / 4
	longestPace = 5 * time.Second
)

// scan returns how often to look for lapsed leases of the types.
func (p *pull) scan(types []string, c clock.Clock) *clock.Pacer {
	key := strings.Join(slices.Sorted(slices.Values(types)), "\x00")
	p.mu.Lock()
	defer p.mu.Unlock()
	pace := p.scans[key]
	if pace == nil {
		if p.scans == nil || len(p.scans) > 10_000 {
			p.scans = map[string]*clock.Pacer{}
		}
		pace = clock.NewPacer(c, scanPause, longestPace)
		p.scans[key] = pace
	}
	return pace
}

// failed notes that a fetch ended with the error.
func (p *pull) failed(err error) {
	if store.Outage(err) {
		p.trust.Failed()
	}
}

// unbased reports, once, that the primary is not known yet.
func (p *pull) unbased() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.based
	p.based = true
	return first
}

// takeOver takes tasks over lapsed leases, as far as the request goes, and leaves the rest of
// what it found for others, as a consumer does.
func (f *fetch) takeOver(ctx context.Context) error {
	trust := f.p.pull.trust
	var found []*model.Task
	looked, err := f.p.pull.scan(f.types, f.p.store.Local()).Try(func() (err error) {
		found, err = f.p.store.Tasks.Lapsed(ctx, f.types, pullScan)
		return err
	})
	if err != nil || !looked {
		return err
	}
	trust.Answered()
	if len(found) > 0 || f.p.pull.unbased() {
		if err := f.checkPrimary(ctx); err != nil {
			return err
		}
	}
	now := f.p.store.Clock.Now()
	room := f.p.store.Tasks.Fit(f.left) // what is taken over is read whole
	var takeovers, leaves []store.Write
	var left claim.LeftAlone
	defer func() { f.p.watch.observe(f.types, left) }()
	for _, t := range found {
		eff, by := f.terms(t)
		if !trust.Allows(&eff, &left) {
			continue
		}
		may := room > len(takeovers) && !f.p.limits.Limited(t)          // that needs a grant: it is due again
		d, ok := claim.Lapsed(t, by, may, eff, now, mathrand.Float64()) //nolint:gosec // jitter, not a secret
		switch {
		case !ok:
		case d.Takeover:
			takeovers = append(takeovers, d.Write)
		default:
			leaves = append(leaves, d.Write)
		}
	}
	if err := f.finishTakeOver(ctx, takeovers); err != nil {
		return err
	}
	written, err := f.p.store.Tasks.Writes(ctx, leaves, store.Patience)
	for i, w := range written {
		after := leaves[i].After
		if w.Applied {
			f.p.pull.hear(after)
			f.p.limits.Ended(after, lifecycle.EndedExecutions(leaves[i].Before, after))
		}
		if w.Applied && after.Status.Ended() {
			f.p.follow.Ended(after)
		}
	}
	return err
}

// finishTakeOver writes the takeovers and takes what was won, as it is by then: other workers of
// the same task may have pinged.
func (f *fetch) finishTakeOver(ctx context.Context, takeovers []store.Write) error {
	written, err := f.write(ctx, takeovers)
	if err != nil {
		return err
	}
	var won []string
	for i, w := range written {
		if w.Applied {
			won = append(won, takeovers[i].After.ID)
		}
	}
	if len(won) == 0 {
		return nil
	}
	current, err := f.p.store.Tasks.ByIDs(ctx, won)
	if err != nil {
		return err
	}
	for _, id := range won {
		if t := current[id]; t != nil {
			if _, w := t.Execution(f.exec); w != nil && w.Open() {
				f.take(t)
			}
		}
	}
	return nil
}

// checkPrimary asks who the primary is: another one than before means that the workers
// may just not have been able to ping. A reading of another server's clock is replaced.
func (f *fetch) checkPrimary(ctx context.Context) error {
	name, err := f.p.store.Primary(ctx)
	if err != nil {
		return err
	}
	if f.p.pull.trust.SawPrimary(name) {
		f.p.store.Forget()
		f.p.store.Clock.Doubt()
	}
	if f.p.pull.trust.WantsClock() {
		return f.p.store.ReadClock(ctx)
	}
	return nil
}

// newExecID makes a random UUID (version 4).
func newExecID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
