package store

import (
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// head remembers where a queue begins that an index keeps in the order of a time, such as
// lapse_at. MongoDB keeps deleted keys in its indexes for minutes, and a query walks over those
// in its range. So a loop queries from the last known head, less a margin.
//
// The head is never later than the time of its look. Later writes lie at or after that time,
// because a start, a lease and an expiry begin at the writer's idea of now. The margin covers
// a late clock of the writer, and the way to the server. An earlier key is a straggler: from a
// transaction that commits a minute after the send, a restored backup, a frozen process. A look
// without a bound finds it, and one is due whenever every has passed. For due tasks see
// claim.Sight.
type head struct {
	every  time.Duration // between looks without a bound
	margin time.Duration

	mu    sync.Mutex
	at    time.Time     // no key lies before it, as far as is known; zero = nothing is known
	whole time.Duration // monotonic: when the last look without a bound began
}

// look is one look at a queue.
type look struct {
	from  time.Time     // the bound; zero = the look has none
	until time.Time     // the look sees everything up to here, or more
	began time.Duration // by the monotonic clock
}

// unboundedLook is a look that must find everything until the given time.
func unboundedLook(until time.Time, monotonic time.Duration) look {
	return look{until: until, began: monotonic}
}

// unbounded reports whether the look has no bound.
func (l look) unbounded() bool { return l.from.IsZero() }

// onward is the condition on the time of a look at all that is there.
func (l look) onward() bson.D {
	if l.unbounded() {
		return exists
	}
	return bson.D{d("$gte", l.from)}
}

// upTo is the condition on the time of a look at what is there until then.
func (l look) upTo(t time.Time) bson.D {
	if l.unbounded() {
		return bson.D{d("$lte", t)}
	}
	return bson.D{d("$gte", l.from), d("$lte", t)}
}

// begin returns where a look must start to see everything until the given time, which is
// not later than the database's.
func (h *head) begin(until time.Time, monotonic time.Duration) look {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := look{until: until, began: monotonic}
	if h.at.IsZero() || monotonic-h.whole >= h.every {
		return l
	}
	l.from = h.at
	if until.Before(l.from) { // a failover set the database's time back: what is new may be earlier
		l.from = until
	}
	l.from = l.from.Add(-h.margin)
	return l
}

// end records the earliest key that the look found; zero = it found none. A failed look is
// not recorded.
func (h *head) end(l look, first time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := l.until
	if !first.IsZero() && first.Before(at) {
		at = first
	}
	h.at = at
	if l.unbounded() {
		h.whole = l.began
	}
}

// looked is how long ago the last look without a bound began; an hour when there was none.
func (h *head) looked(monotonic time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() {
		return time.Hour
	}
	return monotonic - h.whole
}

const (
	headMargin = time.Second
	// wideEvery is how late a straggler may be found by a loop that looks all the time.
	stragglersEvery = 5 * time.Second
	// upkeepEvery is the same for the upkeep, which looks at most every few seconds.
	upkeepEvery = 20 * time.Second
	// maxHeads bounds the memory of a process that serves ever new sets of types.
	maxHeads = 1000
)

// heads are the heads of the queues that a process looks at: one for each index and set of
// types, tenants or whatever else makes one query differ from another.
type heads struct {
	mu sync.Mutex
	of map[string]*head
}

// head returns the head of the queue that the index and these names describe. Unknown ones
// begin with a look without a bound.
func (s *core) head(index string, names ...string) *head {
	key := index + "\x00" + strings.Join(names, "\x00")
	s.heads.mu.Lock()
	defer s.heads.mu.Unlock()
	h := s.heads.of[key]
	if h == nil {
		if s.heads.of == nil || len(s.heads.of) >= maxHeads {
			s.heads.of = map[string]*head{}
		}
		h = &head{every: stragglersEvery, margin: headMargin}
		if index != IndexDue && index != IndexLapse && index != indexFire {
			h.every = upkeepEvery
		}
		s.heads.of[key] = h
	}
	return h
}
