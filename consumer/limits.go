package consumer

import (
	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/model"
)

// Types that are limited over the whole fleet (internal/limits): what they need is asked for
// before the claim, and only for what can start at once, since a permit or a start that waits
// for a slot is lost to the others.

// mayAsk chooses limited tasks that can start at once. by is what is at hand for them; nil =
// nothing.
func (c *Consumer) mayAsk(by *hand) func(*model.Task) bool {
	slots, room := by.slots(), map[string]int{}
	if by == nil {
		slots = c.freeSlots()
	}
	return func(t *model.Task) bool {
		h := c.handlerOf(t.Type)
		if _, known := room[t.Type]; !known {
			room[t.Type] = c.held.room(t.Type, h.limit) + by.slots()
		}
		prompt := c.gate.Prompt(t.Type)
		if room[t.Type] <= 0 || prompt && (slots <= 0 || by == nil && c.gate.Waiting(t.Type)) {
			if prompt && slots <= 0 {
				c.passes.lackSlot(h)
			}
			return false
		}
		room[t.Type]--
		if prompt {
			slots--
		}
		return true
	}
}

// roomWith is how many tasks of each type may be claimed with the slots of a hand; nil = none.
func (c *Consumer) roomWith(by *hand) claim.Room {
	return func(typ string) int {
		h := c.handlerOf(typ)
		if h == nil || h.left.Load() {
			return 0
		}
		return c.held.room(typ, h.limit) + by.slots()
	}
}

// freeSlots is how many handlers could start now. Those that are to begin at a time to come
// count only where slots are short: else each has one by then.
func (c *Consumer) freeSlots() int {
	n := c.held.count()
	free := c.cfg.Concurrency - n.running - n.buffered
	if n.running+n.buffered > c.cfg.Concurrency/2 {
		free -= n.planned
	}
	return free
}

// noRoomFor says whether the type is limited and nothing of it can be claimed now: it has no
// room, or this process no free slot. Beside a backlog of other types no slot is ever free. So
// tasks of the type are looked for until some are known, and the next slot that frees is theirs.
func (c *Consumer) noRoomFor(typ string) bool {
	if !c.gate.Prompt(typ) {
		return false
	}
	if c.gate.Waiting(typ) {
		return true
	}
	if c.freeSlots() > 0 {
		return false
	}
	if c.passes.opened() && !c.gate.Knows(typ) {
		return false
	}
	c.lackSlot(c.handlerOf(typ))
	return c.freeSlots() <= 0
}

// admitted is for a task whose key has room again.
func (c *Consumer) admitted(t *model.Task) {
	c.seeker.Hear(t)
	if h := c.handlerOf(t.Type); h != nil && c.gate.Prompt(t.Type) && c.freeSlots() <= 0 {
		c.gate.Learn([]*model.Task{t})
		c.lackSlot(h)
	}
}

// lackSlot records that this process knows tasks of a type and has no slot for them.
func (c *Consumer) lackSlot(h *handler) {
	c.passes.lackSlot(h)
	c.slotFreed() // one may have been freed since
}

// slotFreed wakes the fetch loop for types that lacked a slot, if one is free.
func (c *Consumer) slotFreed() {
	if c.passes.lacks.Load() && c.freeSlots() > 0 && c.passes.lackNoLonger() {
		c.wake.now()
	}
}
