package consumer

import (
	"context"
	"slices"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/model"
)

// Types that are limited over the whole fleet (internal/limits): what they need is asked for
// before the claim, and only for what can start at once, since a permit or a start that waits
// for a slot is lost to the others.

// admit asks for what the claims of limited tasks need. left are the tasks to go on with: all
// but those that get nothing now. by is what is at hand for them; nil = nothing. A type that has
// no limits costs a look into a map.
func (c *Consumer) admit(ctx context.Context, found []*model.Task, execID string, by *hand) (grants map[*model.Task]limits.Grant, left []*model.Task, err error) {
	if !c.anyLimited(found) {
		return nil, found, nil
	}
	now, slots := c.store.Clock.Now(), by.slotsOr(c.freeSlots)
	room := map[string]int{}
	var ask, missed []*model.Task
	kept := map[*model.Task]bool{}
	for _, t := range found {
		h := c.handlerOf(t.Type)
		if h == nil || !c.gate.Limited(t) {
			kept[t] = true
			continue
		}
		if !lifecycle.ConditionsMet(c.only, t) || lifecycle.Claimable(t, c.cfg.WorkerID, *h.effective(t), now) != "" {
			kept[t] = true // it is refused, or repaired, as any other
			continue
		}
		if _, known := room[t.Type]; !known {
			room[t.Type] = c.held.room(t.Type, h.limit) + by.slots()
		}
		prompt := c.gate.Prompt(t.Type)
		if room[t.Type] <= 0 || prompt && (slots <= 0 || by == nil && c.gate.Waiting(t.Type)) {
			missed = append(missed, t)
			if prompt && slots <= 0 {
				c.passes.lackSlot(h)
			}
			continue
		}
		room[t.Type]--
		if prompt {
			slots--
		}
		ask = append(ask, t)
	}
	got, err := c.gate.AdmitBy(ctx, ask, execID, by.permits())
	if err != nil {
		return nil, nil, err
	}
	for _, t := range ask {
		if _, granted := got.Granted[t]; !granted && got.Later[t].IsZero() {
			missed = append(missed, t)
		}
	}
	by.miss(c, missed)
	for t, until := range got.Later {
		c.seeker.Refused.Add(t.ID, now, until)
	}
	left = slices.DeleteFunc(slices.Clone(found), func(t *model.Task) bool {
		_, granted := got.Granted[t]
		return !granted && !kept[t]
	})
	return got.Granted, left, nil
}

func (c *Consumer) anyLimited(found []*model.Task) bool {
	last, limited := "", false
	for _, t := range found {
		if t.Type != last {
			last, limited = t.Type, c.gate.LimitsType(t.Type)
		}
		if limited || t.Options.LimitKey != "" {
			return true
		}
	}
	return false
}

// returnGrants returns the grants of those that were not won, as far as they are not at hand
// for others. After an error the state is not known; then the sweeper finds out.
func (c *Consumer) returnGrants(grants map[*model.Task]limits.Grant, won map[*model.Task]bool, by *hand) {
	for t, g := range grants {
		if won[t] {
			by.use(g)
		} else {
			c.gate.Return(by.keep(g))
		}
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
// room, or this process no free slot, which wakes it when one frees. Beside a backlog of other
// types no slot is ever free. So tasks of a type with max_running are looked for until some are
// known, and the next slot that frees is theirs.
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
	if c.passes.opened() && c.gate.Passes(typ) {
		if c.gate.Knows(typ) {
			c.passes.lackSlot(c.handlerOf(typ))
			return true
		}
		return false
	}
	c.starved.Store(true)
	return c.freeSlots() <= 0
}

// slotFreed wakes the fetch loop where limited types were left out for want of a slot.
func (c *Consumer) slotFreed() {
	if c.starved.Swap(false) {
		c.wake.now()
	}
}
