package pull

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// memory is what a process remembers between fetches: what it has seen of the database, and
// when it looked where.
type memory struct {
	store *store.Store
	trust *claim.Trust
	types *claim.TypeScan // of fetches that name none

	news atomic.Uint64 // rises with each task that this process writes

	mu      sync.Mutex
	based   bool                                 // the primary has been asked for once
	scans   map[string]*scan                     // by types
	seekers map[string]*seeker                   // by worker and conditions
	told    [input.MaxPriority + 1]time.Duration // by priority: when the seekers last heard of a task of it
}

// newMemory remembers nothing: what was before this process is a reason for doubt, since it
// may live for one fetch only.
func newMemory(s *store.Store) *memory {
	p := &memory{store: s, trust: claim.NewTrust(s.Clock, s.Local()), types: claim.NewTypeScan(s.Tasks.NextType, s.Local())}
	p.trust.Doubt()
	return p
}

// scan returns the search for lapsed leases of the types.
func (p *memory) scan(types []string, c clock.Clock) *scan {
	key := strings.Join(slices.Sorted(slices.Values(types)), "\x00")
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.scans[key]
	if s == nil {
		if p.scans == nil || len(p.scans) > 10_000 {
			p.scans = map[string]*scan{}
		}
		s = &scan{pace: clock.NewPacer(c, scanPause, longestPace)}
		p.scans[key] = s
	}
	return s
}

// failed notes that a fetch ended with the error.
func (p *memory) failed(err error) {
	if store.Outage(err) {
		p.trust.Failed()
	}
}

// unbased reports, once, that the primary is not known yet.
func (p *memory) unbased() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.based
	p.based = true
	return first
}
