package consumer

import (
	"context"
	"slices"

	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/model"
)

// Types that are limited over the whole fleet (internal/limits): what they need is asked for
// before the claim, and only for what can start at once, since a permit or a start that waits
// for a slot is lost to the others.

// admit asks for what the claims of limited tasks need. left are the tasks to go on with: all
// but those that get nothing now. A type that has no limits costs a look into a map.
func (c *Consumer) admit(ctx context.Context, found []*model.Task, execID string) (grants map[*model.Task]limits.Grant, left []*model.Task, err error) {
	if !c.anyLimited(found) {
		return nil, found, nil
	}
	now, slots := c.store.Clock.Now(), c.freeSlots()
	room := map[string]int{}
	var ask []*model.Task
	kept := map[*model.Task]bool{}
	for _, t := range found {
		h := c.handlerOf(t.Type)
		if h == nil || !c.gate.Limited(t) {
			kept[t] = true
			continue
		}
		if !c.only.Met(t) || model.Claimable(t, c.cfg.WorkerID, *h.effective(t), now) != "" {
			kept[t] = true // it is refused, or repaired, as any other
			continue
		}
		if _, known := room[t.Type]; !known {
			room[t.Type] = c.held.room(t.Type, h.limit)
		}
		prompt := c.gate.Prompt(t.Type)
		if room[t.Type] <= 0 || prompt && (slots <= 0 || c.gate.Waiting(t.Type)) {
			continue
		}
		room[t.Type]--
		if prompt {
			slots--
		}
		ask = append(ask, t)
	}
	got, err := c.gate.Admit(ctx, ask, execID)
	if err != nil {
		return nil, nil, err
	}
	for t, until := range got.Later {
		c.refused.add(t.ID, now, until)
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

// returnGrants returns the grants of those that were not won. After an error nobody knows what was:
// then the sweeper finds out.
func (c *Consumer) returnGrants(grants map[*model.Task]limits.Grant, won map[*model.Task]bool) {
	for t, g := range grants {
		if !won[t] {
			c.gate.Return(g)
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
// room, or this process no free slot, which wakes it when one frees.
func (c *Consumer) noRoomFor(typ string) bool {
	if !c.gate.Prompt(typ) {
		return false
	}
	if c.freeSlots() <= 0 {
		c.starved.Store(true)
		if c.freeSlots() <= 0 {
			return true
		}
	}
	return c.gate.Waiting(typ)
}

// slotFreed wakes the fetch loop where limited types were left out for want of a slot.
func (c *Consumer) slotFreed() {
	if c.starved.Swap(false) {
		c.wake.now()
	}
}
