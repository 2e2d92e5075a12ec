package producer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// pull is what a process remembers between fetches: what it has seen of the database, and
// when it looked where.
type pull struct {
	trust *claim.Trust
	types *claim.TypeScan // of fetches that name none

	mu     sync.Mutex
	based  bool                     // the primary has been asked for once
	looked map[string]time.Duration // by worker: when it looked at everybody's audience
	scans  map[string]*clock.Pacer  // by types: of the search for lapsed leases
	held   map[string]time.Duration // by task: until when fetches leave it out
}

// newPull remembers nothing: what was before this process is a reason for doubt, since it
// may live for one fetch only.
func newPull(s *store.Store) *pull {
	p := &pull{trust: claim.NewTrust(s.Clock, s.Local()), types: claim.NewTypeScan(s.NextType, s.Local())}
	p.trust.Doubt()
	return p
}

const (
	wideGap  = 30 * time.Second
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

// Tasks that somebody else holds are left out of the fetches of the next second, the first
// maxHeld of them.
const (
	heldFor = time.Second
	maxHeld = 200
)

func (p *pull) leaveOut(now time.Duration, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[string]time.Duration{}
	}
	if len(p.held) < maxHeld {
		p.held[id] = now + heldFor
	}
}

func (p *pull) leftOut(now time.Duration) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, until := range p.held {
		if now > until {
			delete(p.held, id)
		} else {
			ids = append(ids, id)
		}
	}
	return ids
}

// takeOver takes tasks over lapsed leases, as far as the request goes, and leaves the rest of
// what it found for others, as a consumer does.
func (f *fetch) takeOver(ctx context.Context) error {
	trust := f.p.pull.trust
	var found []*model.Task
	looked, err := f.p.pull.scan(f.types, f.p.store.Local()).Try(func() (err error) {
		found, err = f.p.store.Lapsed(ctx, f.types, pullScan)
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
	var leaves []store.Write
	var left claim.LeftAlone
	defer func() { f.p.watch.observe(f.types, left) }()
	for _, t := range found {
		eff, by := f.terms(t)
		if !trust.Allows(&eff, &left) {
			continue
		}
		may := f.left > 0 && !f.p.limits.Limited(t)                     // that needs a grant: it is due again
		d, ok := claim.Lapsed(t, by, may, eff, now, mathrand.Float64()) //nolint:gosec // jitter, not a secret
		switch {
		case !ok:
		case d.Takeover:
			after, err := f.p.store.TakeOver(ctx, d.Write)
			if errors.Is(err, store.ErrHeld) || store.Final(err) && !store.Denied(err) {
				continue // of this task alone: somebody holds it, or its document has no room
			}
			if err != nil {
				after, err = f.settleTakeOver(ctx, d.Write, eff.Lease, err)
			}
			if err != nil {
				return err
			}
			if after != nil {
				f.take(after)
			}
		default:
			leaves = append(leaves, d.Write)
		}
	}
	written, err := f.p.store.Writes(ctx, leaves, store.Patience)
	for i, w := range written {
		after := leaves[i].After
		if w.Applied {
			f.p.limits.Ended(after, lifecycle.EndedExecutions(leaves[i].Before, after))
		}
		if w.Applied && after.Status.Ended() {
			f.p.follow.Ended(after)
		}
	}
	return err
}

// settleTakeOver finds out about a takeover whose answer was lost with the error: the task
// when it was won, nil when not.
func (f *fetch) settleTakeOver(ctx context.Context, w store.Write, lease time.Duration, err error) (*model.Task, error) {
	written, err := f.settle(ctx, []store.Write{w}, lease, err)
	if err != nil || !written[0].Applied {
		return nil, err
	}
	current, err := f.p.store.ByIDs(ctx, []string{w.After.ID}) // it may have been pinged
	if err != nil {
		return nil, err
	}
	t := current[w.After.ID]
	if t != nil {
		if _, st := t.Execution(f.exec); st == nil || !st.Open() {
			return nil, nil
		}
	}
	return t, nil
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
