package consumer

import (
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

// holdings are all executions of this process: those that wait for a slot, those that
// run and those whose end is being written. Slots and limits are counted here.
type holdings struct {
	mu       sync.Mutex
	all      map[*execution]struct{}
	buffer   []*execution   // in the order in which they shall start
	planned  []*execution   // those whose time to begin is to come, the earliest first
	alarm    *time.Timer    // for the first of them
	alarmAt  time.Time      // the store's; zero = none is set
	promised int            // slots for what is being claimed apart
	running  int            // handlers that have not returned
	byType   map[string]int // buffered and running
	changed  chan struct{}  // closed when something was started or left; nil while nobody waits
	low      chan struct{}  // the same, once no more than lowAt wait for a slot
	lowAt    int
	started  uint64        // handlers ever started
	lastMove time.Duration // monotonic: when one was last started or the buffer was filled
}

func newHoldings() *holdings {
	return &holdings{all: map[*execution]struct{}{}, byType: map[string]int{}}
}

// add takes claimed executions in, to start in this order, those excepted whose time to
// begin is to come: at is the store's.
func (h *holdings) add(xs []*execution, now time.Duration, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.buffer) == 0 {
		h.lastMove = now
	}
	planned := len(h.planned)
	for _, x := range xs {
		h.all[x] = struct{}{}
		h.byType[x.h.typ]++
		if x.from.After(at) {
			h.planned = append(h.planned, x)
		} else {
			h.buffer = append(h.buffer, x)
		}
	}
	if len(h.planned) > planned {
		slices.SortStableFunc(h.planned, func(a, b *execution) int { return a.from.Compare(b.from) })
	}
}

// ripen lets those start whose time has come, before all that wait for a slot, since it
// passes; at is the store's. For the next one it sees to it that again is called then.
func (h *holdings) ripen(at time.Time, now time.Duration, again func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.planned) && !h.planned[n].from.After(at) {
		n++
	}
	if n > 0 {
		if len(h.buffer) == 0 {
			h.lastMove = now
		}
		h.buffer = slices.Insert(h.buffer, 0, h.planned[:n]...)
		h.planned = slices.Delete(h.planned, 0, n)
	}
	if len(h.planned) == 0 {
		return
	}
	next := h.planned[0].from
	if !h.alarmAt.IsZero() && !next.Before(h.alarmAt) {
		return
	}
	if h.alarm != nil {
		h.alarm.Stop()
	}
	h.alarmAt = next
	h.alarm = time.AfterFunc(next.Sub(at), func() {
		h.mu.Lock()
		h.alarmAt = time.Time{}
		h.mu.Unlock()
		again()
	})
}

// next takes the first waiting execution if fewer than slots run; nil otherwise.
func (h *holdings) next(slots int, now time.Duration) *execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running >= slots || len(h.buffer) == 0 {
		return nil
	}
	x := h.buffer[0]
	h.buffer[0] = nil
	h.buffer = h.buffer[1:]
	h.running++
	h.started++
	h.lastMove = now
	h.signal()
	return x
}

// takeBuffer takes everything that has not started, to be given back.
func (h *holdings) takeBuffer() []*execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	xs := append(h.buffer, h.planned...)
	h.buffer, h.planned = nil, nil
	for _, x := range xs {
		h.byType[x.h.typ]--
	}
	return xs
}

// unbuffer takes one that has not started; false when it has.
func (h *holdings) unbuffer(x *execution) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.buffer, x); i >= 0 {
		h.buffer = slices.Delete(h.buffer, i, i+1)
	} else if i := slices.Index(h.planned, x); i >= 0 {
		h.planned = slices.Delete(h.planned, i, i+1)
	} else {
		return false
	}
	h.byType[x.h.typ]--
	return true
}

// stalled says whether something waits for a slot and nothing has started for so long.
func (h *holdings) stalled(now, after time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.buffer) > 0 && now-h.lastMove > after
}

// handlerReturned frees the slot: never before the handler has returned. reopened says
// that its type was at its limit, so that nobody looked for tasks of it.
func (h *holdings) handlerReturned(x *execution) (reopened bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reopened = x.h.limit > 0 && h.byType[x.h.typ] >= x.h.limit
	h.running--
	h.byType[x.h.typ]--
	h.signal()
	return reopened
}

// idle says whether no handler runs or waits for a slot.
func (h *holdings) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running == 0 && len(h.buffer) == 0
}

// remove forgets an execution whose end is written, or refused.
func (h *holdings) remove(x *execution) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, x)
	h.signal()
}

func (h *holdings) signal() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
	if h.low != nil && len(h.buffer) <= h.lowAt {
		close(h.low)
		h.low = nil
	}
}

// change is closed when the next execution is started or leaves.
func (h *holdings) change() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// below is closed when the next execution is started or leaves while no more than n wait
// for a slot. It is for one waiter: the next call's n counts from then on.
func (h *holdings) below(n int) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lowAt = n
	if h.low == nil {
		h.low = make(chan struct{})
	}
	return h.low
}

// each is a snapshot of all executions.
func (h *holdings) each() []*execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	xs := make([]*execution, 0, len(h.all))
	for x := range h.all {
		xs = append(xs, x)
	}
	return xs
}

// counts of what is held.
type counts struct {
	buffered, running, all int // buffered includes what is being claimed apart
	planned                int // not among the buffered: their time to begin is to come
	started                uint64
}

func (h *holdings) count() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return counts{buffered: len(h.buffer) + h.promised, running: h.running, all: len(h.all), planned: len(h.planned), started: h.started}
}

// promise keeps slots, and places below the limits of types, for writes that claim apart
// from the fetches. release gives them back.
func (h *holdings) promise(writes []store.Write) (release func()) {
	change := func(by int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.promised += by * len(writes)
		for _, w := range writes {
			h.byType[w.After.Type] += by
		}
		h.signal()
	}
	change(1)
	return func() { change(-1) }
}

// room is how many more executions of a type may be claimed; limit 0 = no limit.
func (h *holdings) room(typ string, limit int) int {
	if limit == 0 {
		return largeBatch
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return limit - h.byType[typ]
}
