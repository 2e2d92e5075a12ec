package consumer

import (
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/fetchplan"
)

// holdings are all executions of this process: those that wait for a slot, those that
// run and those whose end is being written. Slots and limits are counted here.
type holdings struct {
	mu       sync.Mutex
	all      map[*execution]struct{}
	buffer   []*execution   // in the order in which they shall start
	planned  []*execution   // those whose time to begin is to come, the earliest first
	aside    int            // number of those, here and in the buffer, that have their slot already
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
	slots    int
	released func(reopened bool)   // called when kept slots or promised ones are free; see handlerReturned
	limits   func(typ string) bool // whether a type is limited over the fleet
}

// slot is the state of an execution's slot. The mutex of the holdings guards it.
type slot int

const (
	noSlot    slot = iota
	hasSlot        // its handler runs
	keepsSlot      // its handler has returned; the slot is for the next execution by its permit
	setAside       // its handler waits for the time to begin; no other may have the slot
)

func newHoldings(slots int) *holdings {
	return &holdings{slots: slots, all: map[*execution]struct{}{}, byType: map[string]int{}, released: func(bool) {}, limits: func(string) bool { return false }}
}

// add takes claimed executions in, to start in this order, those excepted whose time to
// begin is to come: at is the store's.
func (h *holdings) add(xs []*execution, now time.Duration, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.buffer) == 0 {
		h.lastMove = now
	}
	planned, first := len(h.planned), 0
	for _, x := range xs {
		h.all[x] = struct{}{}
		h.byType[x.h.typ]++
		switch {
		case x.from.After(at):
			h.planned = append(h.planned, x)
			if 2*(h.running+len(h.buffer)) > h.slots && h.running < h.slots { // else one is free by then
				x.slot = setAside
				h.aside++
				h.running++
			}
		case x.ofType() != nil || !x.until.IsZero(): // no other task can use its permit or its start while it waits
			h.buffer = slices.Insert(h.buffer, first, x)
			first++
		default:
			h.buffer = append(h.buffer, x)
		}
	}
	if len(h.planned) > planned {
		slices.SortStableFunc(h.planned, func(a, b *execution) int { return a.from.Compare(b.from) })
	}
}

// keepForStart gives slots that were reserved for a type to its executions whose time to begin is to
// come. It returns the number of those that it gave.
func (h *holdings) keepForStart(of *handler, n int) (given int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.planned {
		if given < n && x.h == of && x.slot == noSlot {
			x.slot = setAside
			given++
		}
	}
	h.aside += given
	h.byType[of.typ] -= given // it counts them already
	return given
}

// unwait is for an execution that waited and will not begin. A slot that was set aside for it stays its own
// until its end is written. The caller holds mu.
func (h *holdings) unwait(x *execution) (reopened bool) {
	if x.slot == setAside {
		x.slot = keepsSlot
		h.aside--
		return false
	}
	reopened = h.isFull(x.h)
	h.byType[x.h.typ]--
	return reopened
}

// startDue lets those start whose time has come, before all that wait for a slot, since it
// passes; at is the store's. For the next one it sees to it that again is called then.
func (h *holdings) startDue(at time.Time, now time.Duration, again func()) {
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

// next takes the first waiting execution if a slot is free; nil otherwise.
func (h *holdings) next(now time.Duration) *execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := 0
	if h.running >= h.slots {
		if h.aside == 0 {
			return nil
		}
		i = slices.IndexFunc(h.buffer, func(x *execution) bool { return x.slot == setAside })
	}
	if i < 0 || len(h.buffer) == 0 {
		return nil
	}
	x := h.buffer[i]
	copy(h.buffer[1:i+1], h.buffer[:i])
	h.buffer[0] = nil
	h.buffer = h.buffer[1:]
	if x.slot == setAside {
		h.aside--
	} else {
		h.running++
	}
	x.slot = hasSlot
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
		h.unwait(x)
	}
	return xs
}

// unbuffer takes one that has not started; taken is false when it has. reopened means that its type was at its limit.
func (h *holdings) unbuffer(x *execution) (taken, reopened bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.buffer, x); i >= 0 {
		h.buffer = slices.Delete(h.buffer, i, i+1)
	} else if i := slices.Index(h.planned, x); i >= 0 {
		h.planned = slices.Delete(h.planned, i, i+1)
	} else {
		return false, false
	}
	return true, h.unwait(x)
}

// stalled says whether something waits for a slot and nothing has started for so long.
func (h *holdings) stalled(now, after time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.buffer) > 0 && now-h.lastMove > after
}

// handlerReturned frees the slot, never before the handler has returned. keep leaves it for
// the next execution by the same permit, unless the end of this one is already written.
// Otherwise next may have it, a limited type that lacks a slot; given means that it was reserved for that.
// Beside waiting tasks, limited types together have half of the slots, and one without any has the next
// that another type frees.
// reopened means that the execution's type was at its limit, so that no fetch looked for it.
func (h *holdings) handlerReturned(x *execution, keep bool, next *handler) (reopened, given bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.slot == noSlot {
		return false, false // it was handed over
	}
	if _, held := h.all[x]; keep && held && h.mayKeep(x) {
		x.slot = keepsSlot
		return false, false
	}
	x.slot = noSlot
	reopened = h.free(x.h, 1)
	if next != nil {
		n, by := h.byType[next.typ], x.h == next || h.limits(x.h.typ)
		some := 2*(h.ofLimited(next.typ)+1) <= h.slots || n == 0 && (!by || len(h.buffer) == 0)
		if given = some && (next.limit == 0 || n < next.limit); given {
			h.take(next, 1)
		}
	}
	return reopened, given
}

// mayKeep reports whether the next execution by the same permit may have the slot before waiting
// tasks. Half of the slots are enough for limited types, and a greater priority goes first. The caller
// holds mu.
func (h *holdings) mayKeep(x *execution) bool {
	return len(h.buffer) == 0 || 2*h.ofLimited(x.h.typ) <= h.slots && h.buffer[0].task.Priority <= x.task.Priority
}

// ofLimited counts the executions of limited types. typ is one of these types. The caller holds mu.
func (h *holdings) ofLimited(typ string) int {
	n := h.byType[typ]
	for other, held := range h.byType {
		if other != typ && held > 0 && h.limits(other) {
			n += held
		}
	}
	return n
}

// free gives back n slots of executions of the handler's type. The caller holds mu.
func (h *holdings) free(of *handler, n int) (reopened bool) {
	reopened = h.isFull(of)
	h.running -= n
	h.byType[of.typ] -= n
	h.signal()
	return reopened
}

// idle reports whether no handler runs or waits for a slot.
func (h *holdings) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running == 0 && len(h.buffer) == 0
}

// waitsForWork reports whether a slot is free and nothing waits for one.
func (h *holdings) waitsForWork() bool {
	n := h.count()
	return n.running < h.slots && n.buffered == 0
}

// handOver takes the slot of an execution whose end is written, if it has one, for the next
// execution by the same permit. The caller frees it with [holdings.release].
func (h *holdings) handOver(x *execution) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.slot == noSlot || !h.mayKeep(x) {
		return false
	}
	x.slot = noSlot
	return true
}

// reserve takes up to n free slots for executions of the handler's type, before they are
// claimed.
func (h *holdings) reserve(of *handler, n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.slots-h.running-h.promised)
	if of.limit > 0 {
		n = min(n, of.limit-h.byType[of.typ])
	}
	n = max(n, 0)
	h.take(of, n)
	return n
}

// take reserves slots. The caller holds mu.
func (h *holdings) take(of *handler, n int) {
	h.running += n
	h.byType[of.typ] += n
}

// best returns the priority of the task that waits for a slot next; -1 = none waits.
func (h *holdings) best() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.buffer) == 0 {
		return -1
	}
	return h.buffer[0].task.Priority
}

// release frees slots that were handed over or reserved.
func (h *holdings) release(of *handler, n int) {
	if n == 0 {
		return
	}
	h.mu.Lock()
	reopened := h.free(of, n)
	h.mu.Unlock()
	h.released(reopened)
}

// keepNoLonger frees the slot of an execution that has returned, if it keeps one.
func (h *holdings) keepNoLonger(x *execution) {
	h.mu.Lock()
	kept, reopened := x.slot == keepsSlot, false
	if kept {
		x.slot = noSlot
		reopened = h.free(x.h, 1)
	}
	h.mu.Unlock()
	if kept {
		h.released(reopened)
	}
}

// ofType reports whether executions of the type are claimed.
func (h *holdings) ofType(typ string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byType[typ] > 0
}

// remove forgets an execution whose end is written, or refused.
func (h *holdings) remove(x *execution) {
	h.keepNoLonger(x)
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
	planned                int // not among the buffered: their time to begin is to come; they have no slot yet
	started                uint64
}

// forPlan is what the plan of fetches counts.
func (n counts) forPlan() fetchplan.Held {
	return fetchplan.Held{Buffered: n.buffered, Running: n.running, Started: n.started}
}

func (h *holdings) count() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	planned := 0
	for _, x := range h.planned {
		if x.slot == noSlot {
			planned++
		}
	}
	return counts{buffered: len(h.buffer) + h.promised, running: h.running, all: len(h.all), planned: planned, started: h.started}
}

// promise reserves slots, and places below the limits of the handlers' types, for claims apart from the
// fetches: one for each handler. release gives them back.
func (h *holdings) promise(claims []*handler) (release func()) {
	change := func(by int) (reopened bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.promised += by * len(claims)
		for _, of := range claims {
			full := h.isFull(of)
			h.byType[of.typ] += by
			reopened = reopened || full && !h.isFull(of)
		}
		h.signal()
		return reopened
	}
	change(1)
	return func() { h.released(change(-1)) }
}

// isFull reports whether the type is at its limit, so that no fetch looks for it. The caller holds mu.
func (h *holdings) isFull(of *handler) bool { return of.limit > 0 && h.byType[of.typ] >= of.limit }

// room is how many more executions of a type may be claimed; limit 0 = no limit.
func (h *holdings) room(typ string, limit int) int {
	if limit == 0 {
		return fetchplan.LargeBatch
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return limit - h.byType[typ]
}
