package consumer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
)

// When an execution of a type with max_running has ended, its permit and its slot go straight
// to the next task of the type that this process knows. That takes two writes and a read by
// id, and no search:
//
//	handler returns ─▶ the end is acknowledged ─▶ the permit names the next task ─▶ its claim
//
// It happens beside the fetch loop, whose searches may be slow.

// passing holds the permits and slots that go on to the next tasks of one type.
type passing struct {
	permits []lifecycle.Permit // of executions whose end was acknowledged
	slots   int                // that those had
	room    int                // number of permits that other processes have freed
}

// passes gathers permits that go on.
type passes struct {
	wake chan struct{}

	lanes chan struct{} // holds a token for each command of ends and claims that is on its way

	mu        sync.Mutex
	open      bool
	under     sync.WaitGroup // claims under way, and searches
	waiting   map[*handler]*passing
	preparing map[*handler][]*execution // that want successors
	took      time.Duration             // lately, to prepare one
	follows   []*following              // that gather
	lack      map[*handler]bool         // limited types with known tasks that may start, but without a slot
	lacks     atomic.Bool               // lack is not empty
}

// openPasses lets permits pass on, until [Consumer.passLoop] ends.
func (c *Consumer) openPasses() {
	c.passes.wake, c.passes.lanes = make(chan struct{}, 1), make(chan struct{}, followsAtOnce)
	c.passes.open = true
	c.passes.take() // makes room
	c.passes.lack = map[*handler]bool{}
	c.gate.Watch(limits.Watcher{Room: c.takeRoom, Holds: c.held.ofType})
}

// passesOn reports whether the permit of an execution may pass on, which keeps its slot.
func (c *Consumer) passesOn(x *execution) bool {
	return x.ofType() != nil && c.gate.Passes(x.h.typ) && c.gate.Knows(x.h.typ) && !x.h.left.Load() && !c.waits(x.h.typ) && c.passes.opened() && !c.owesTurn(x)
}

// owesTurn reports whether another limited type, of no lower priority, waits for a slot and has none: types with
// backlogs that pass their slots on would never leave it one.
func (c *Consumer) owesTurn(x *execution) bool {
	next := c.passes.lacking(c)
	if next == nil || next == x.h || c.held.ofType(next.typ) {
		return false
	}
	priority, known := c.gate.Best(next.typ)
	return known && priority >= x.task.Priority
}

// releasePermits gives back the permits of an execution that has ended. passOn lets that of its type
// go on to the next task.
func (c *Consumer) releasePermits(x *execution, passOn bool) {
	if len(x.permits) == 0 {
		return
	}
	permits, wait := c.passes.permitsOf(x)
	if wait {
		return
	}
	i := slices.IndexFunc(permits, ofType)
	if i >= 0 && passOn && c.passesOn(x) && c.passes.add(c, x, permits[i]) {
		permits = slices.Delete(permits, i, i+1)
	}
	c.gate.Return(limits.Grant{Permits: permits})
}

func (p *passes) opened() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// add gathers the permit and the slot of the execution until the next send.
func (p *passes) add(c *Consumer, x *execution, permit lifecycle.Permit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return false
	}
	of := p.of(x.h)
	of.permits = append(of.permits, permit)
	switch s := x.successor; {
	case s != nil && s.slot:
		s.slot = false
		of.slots++
	case c.held.handOver(x):
		of.slots++
	}
	return true
}

// of returns the passing of a type. The caller holds mu.
func (p *passes) of(h *handler) *passing {
	if p.waiting[h] == nil {
		p.waiting[h] = &passing{}
	}
	return p.waiting[h]
}

// send starts the claims for what was gathered.
func (p *passes) send() {
	p.mu.Lock()
	some := len(p.waiting) > 0
	p.mu.Unlock()
	if some {
		clock.Wake(p.wake)
	}
}

// take takes what has gathered.
func (p *passes) take() (waiting map[*handler]*passing, preparing map[*handler][]*execution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting, preparing = p.waiting, p.preparing
	p.waiting, p.preparing = map[*handler]*passing{}, map[*handler][]*execution{}
	return waiting, preparing
}

// lackSlot is [Consumer.lackSlot].
func (p *passes) lackSlot(h *handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		p.lack[h] = true
		p.lacks.Store(true)
	}
}

// lackNoLonger is for a slot that is free. It reports whether any type lacked one: the fetch loop looks
// for those that may start, and sleeps until the others may.
func (p *passes) lackNoLonger() (some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	some = len(p.lack) > 0
	clear(p.lack)
	p.lacks.Store(false)
	return some
}

// lacking returns the type that gets the next slot before waiting tasks, by priority, and then one that has none;
// nil = none.
func (p *passes) lacking(c *Consumer) (next *handler) {
	if !p.lacks.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	best := c.held.best()
	for h := range p.lack {
		priority, known := c.gate.Best(h.typ)
		starts := c.gate.Passes(h.typ) || !c.gate.Waiting(h.typ)
		first := next == nil || !c.held.ofType(h.typ) && c.held.ofType(next.typ)
		if known && starts && p.open && (priority > best || priority == best && first) {
			next, best = h, priority
		}
	}
	return next
}

// give lets the type take a permit for a slot that was reserved for it.
func (p *passes) give(c *Consumer, h *handler) {
	p.mu.Lock()
	open := p.open
	if open {
		delete(p.lack, h)
		p.lacks.Store(len(p.lack) > 0)
		of := p.of(h)
		of.slots++
		of.room++
	}
	p.mu.Unlock()
	if !open {
		c.held.release(h, 1)
	}
	p.send()
}

// takeRoom takes permits of the type that other processes have freed, for known candidates.
func (c *Consumer) takeRoom(typ string, n int) {
	h := c.handlerOf(typ)
	p := &c.passes
	p.mu.Lock()
	if p.open && h != nil {
		of := p.of(h)
		of.room = max(of.room, n)
	}
	p.mu.Unlock()
	p.send()
}

// passLoop lets permits go on to the next tasks.
func (c *Consumer) passLoop(ctx context.Context) {
	defer c.passes.under.Wait()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-c.passes.wake:
			waiting, preparing := c.passes.take()
			for h, p := range waiting {
				c.passes.under.Go(func() { c.goOn(ctx, h, p) })
			}
			for h, xs := range preparing {
				c.passes.under.Go(func() { c.prepareSuccessors(ctx, h, xs) })
			}
		}
	}
	c.passes.mu.Lock()
	c.passes.open = false
	c.passes.mu.Unlock()
	waiting, _ := c.passes.take()
	for h, p := range waiting {
		c.held.release(h, p.slots)
		c.gate.Return(limits.Grant{Permits: p.permits})
	}
}

// hand holds slots, and permits of ended executions, for the next claims. A nil hand is
// empty.
type hand struct {
	reserved int
	left     []lifecycle.Permit
}

func (h *hand) slots() int {
	if h == nil {
		return 0
	}
	return h.reserved
}

// use takes the outcome of a claim: it removes the slots and permits of what was won, and takes back
// the type's permits whose claims were lost, which the outcome then has no longer.
func (h *hand) use(out *claim.Outcome) {
	for _, w := range slices.Concat(out.Won, out.Held) {
		if g, granted := out.Grants[w.Before]; granted {
			h.drop(g)
			h.reserved--
		}
	}
	for i := range out.Unused {
		g := &out.Unused[i]
		h.drop(*g)
		if n := slices.IndexFunc(g.Permits, ofType); n >= 0 {
			h.left = append(h.left, g.Permits[n])
			g.Permits = slices.Delete(slices.Clone(g.Permits), n, n+1)
		}
	}
}

// drop forgets the permits of the grant, by their names.
func (h *hand) drop(g limits.Grant) {
	h.left = slices.DeleteFunc(h.left, func(p lifecycle.Permit) bool {
		return slices.ContainsFunc(g.Permits, func(o lifecycle.Permit) bool { return o.Name == p.Name })
	})
}

// passTries is how often a permit goes to another candidate after another process was quicker.
const passTries = 4

// goOn claims the next tasks of a type by permits and slots that have become free.
func (c *Consumer) goOn(ctx context.Context, h *handler, p *passing) {
	by := &hand{reserved: p.slots, left: p.permits}
	slots := p.slots // including those that are used by then
	defer func() {
		if p.slots > 0 && slots > 0 && !c.gate.Waiting(h.typ) {
			c.passes.lackSlot(h) // others have what was known; a fetch may find more
		}
		c.held.release(h, slots)
		c.gate.Return(limits.Grant{Permits: by.left})
	}()
	if h.left.Load() || c.waits(h.typ) || c.control.Fresh(ctx) != nil {
		return
	}
	more := c.held.reserve(h, len(p.permits)+p.room-slots)
	slots, by.reserved = slots+more, by.reserved+more
	if by.reserved < len(p.permits)+p.room && c.freeSlots() <= 0 {
		c.lackSlot(h)
	}
	if len(by.left) > 0 && c.yield(ctx, h.typ) {
		c.gate.ReturnForOthers(by.left[:1:1])
		by.left = by.left[1:]
	}
	for range passTries {
		n := min(by.reserved, len(by.left)+p.room)
		if len(by.left) > 0 {
			n = min(n, len(by.left)) // either these are used, or others are taken
		}
		if n <= 0 || c.isStopping() {
			return
		}
		tasks, err := c.candidates(ctx, h, n)
		if err != nil || len(tasks) == 0 {
			c.reportPass(ctx, err)
			return
		}
		if c.control.Fresh(ctx) != nil || c.waits(h.typ) { // the search may have waited for the database
			return
		}
		n = min(n, len(tasks))
		before := by.reserved
		out, err := c.claim(ctx, tasks[:n], by)
		used := before - by.reserved
		c.held.release(h, used-c.held.keepForStart(h, used)) // they wait for a slot, before all others
		slots -= used
		c.gate.Chose(h.typ, 0, out.Lost+out.Unwritable, append(out.Missed, tasks[n:]...))
		if err != nil {
			c.reportPass(ctx, err)
			return
		}
		switch {
		case !c.gate.Passes(h.typ) && (len(out.Won) > 0 || c.gate.Waiting(h.typ)): // there is a next start
			c.lackSlot(h)
		case len(out.Won) > 0 && !c.gate.Waiting(h.typ) && c.freeSlots() <= 0:
			c.lackSlot(h) // there may be more permits
		}
		if len(p.permits) == 0 && len(by.left) == 0 {
			return // one try is enough
		}
	}
}

// yield reports whether to leave a permit of the type to another process.
func (c *Consumer) yield(ctx context.Context, typ string) bool {
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	yes, err := c.gate.Yield(call, typ)
	c.reportPass(ctx, err)
	return yes
}

func (c *Consumer) reportPass(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	c.health.Report(err)
	if !store.Outage(err) {
		c.log.Error().Err(err).Msg("could not claim the next task of a limited type")
	}
}
