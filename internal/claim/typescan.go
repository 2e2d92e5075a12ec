package claim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// TypeScan finds which of very many types have tasks that are due at some time. Each type
// that has some costs one seek in an index, so a pass over thousands takes long. A look is
// bounded in time: it goes on where the last one ended, and answers with what is known by
// then. It is safe for concurrent use.
type TypeScan struct {
	next  func(ctx context.Context, from string) (string, error)
	clock clock.Clock

	mu    sync.Mutex
	known map[string]bool // found in the pass before, or since
	pass  map[string]bool // found in this pass
	from  string          // where the next look begins; "" = a new pass
	looks int             // of this pass
	until time.Duration   // monotonic: what is known holds until then
}

const (
	// scanTime and scanSeeks bound one look.
	scanTime  = 50 * time.Millisecond
	scanSeeks = 500
	// passHolds is how long the answer of a pass holds that took several looks.
	passHolds = time.Second
)

// NewTypeScan makes a scan by a function that returns the first type, in their order, from
// the given name on that has tasks; "" = there is none.
func NewTypeScan(next func(ctx context.Context, from string) (string, error), c clock.Clock) *TypeScan {
	return &TypeScan{next: next, clock: c, known: map[string]bool{}, pass: map[string]bool{}}
}

// Look returns those of the wanted types, which are sorted, that are known to have tasks;
// nil = of all types. whole says that nothing is missing; else look again soon.
func (s *TypeScan) Look(ctx context.Context, wanted []string) (types []string, whole bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.clock.Monotonic()
	whole = began < s.until
	s.looks++
	for n := 0; !whole && (n == 0 || n < scanSeeks && s.clock.Monotonic()-began < scanTime); n++ {
		if whole, err = s.seek(ctx, wanted); err != nil {
			return nil, false, err
		}
	}
	for typ := range s.known {
		if _, is := slices.BinarySearch(wanted, typ); is || wanted == nil {
			types = append(types, typ)
		}
	}
	slices.Sort(types)
	return types, whole, nil
}

// seek goes on to the next type; over says that the pass has ended.
func (s *TypeScan) seek(ctx context.Context, wanted []string) (over bool, err error) {
	from := s.from
	if wanted != nil {
		i, _ := slices.BinarySearch(wanted, from)
		if i == len(wanted) {
			s.end()
			return true, nil
		}
		from = wanted[i]
	}
	typ, err := s.next(ctx, from)
	if err != nil {
		return false, err
	}
	if typ == "" {
		s.end()
		return true, nil
	}
	s.pass[typ], s.known[typ] = true, true
	s.from = typ + "\x00" // follows it, and no type
	return false, nil
}

func (s *TypeScan) end() {
	if s.looks > 1 {
		s.until = s.clock.Monotonic() + passHolds
	}
	s.known, s.pass, s.from, s.looks = s.pass, map[string]bool{}, "", 0
}

// Heard notes a type that has a task.
func (s *TypeScan) Heard(typ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[typ], s.pass[typ] = true, true
}
