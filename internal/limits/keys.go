package limits

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// noteAgain is how long a note counts that tasks wait for a key; the sweeper forgets one
// that is older than [waitKept] and says nothing any more.
const (
	noteAgain = time.Minute
	waitKept  = 10 * time.Minute
	perLook   = 100 // keys at a time
)

// holdBack takes tasks whose key is full out of the queries. The note is written before, so
// that whoever crashes leaves a trace; the look comes after, since the key may have got room
// between the refusal and the write, when nobody saw the task waiting.
func (g *Gate) holdBack(ctx context.Context, typ string, tasks []*model.Task) (held int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	now := g.store.Clock.Now()
	var keys []store.LimitOf
	seen := map[string]bool{}
	var writes []store.Write
	for _, t := range tasks {
		after := lifecycle.HoldBack(t, now)
		if after == nil {
			continue
		}
		writes = append(writes, store.Write{Before: t, After: after})
		if k := t.Options.LimitKey; !seen[k] {
			seen[k] = true
			keys = append(keys, store.LimitOf{Type: typ, Key: k})
		}
	}
	if len(writes) == 0 {
		return 0, nil
	}
	if err := g.note(ctx, keys); err != nil {
		return 0, err
	}
	written, err := g.store.Tasks.Writes(ctx, writes, store.Patience)
	if err != nil {
		return 0, err
	}
	for _, w := range written {
		if w.Applied {
			held++
		}
	}
	return held, g.Look(ctx, typ, keys)
}

func (g *Gate) note(ctx context.Context, keys []store.LimitOf) error {
	now := g.store.Local().Monotonic()
	var unknown []store.LimitOf
	g.mu.Lock()
	for _, of := range keys {
		if at, known := g.noted[of]; !known || now-at > noteAgain {
			unknown = append(unknown, of)
		}
	}
	g.mu.Unlock()
	if err := g.store.Permits.NoteWaits(ctx, unknown); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.noted) > 10_000 {
		clear(g.noted)
	}
	for _, of := range unknown {
		g.noted[of] = now
	}
	return nil
}

// Look gives the audience back to as many of the tasks that wait for the keys as those have
// room for, the best first. Of one with a rate it looks again when the next start comes, as
// long as tasks wait.
func (g *Gate) Look(ctx context.Context, typ string, keys []store.LimitOf) error {
	if len(keys) == 0 {
		return nil
	}
	keyed := lifecycle.Keyed(g.types.Get(typ))
	room, err := g.roomOf(ctx, typ, keys, keyed)
	if err != nil {
		return err
	}
	now, starts := g.store.Clock.Now(), map[store.LimitOf]time.Time{}
	if keyed.RateLimit != nil {
		if starts, err = g.store.Rates.Next(ctx, keys, *keyed.RateLimit); err != nil {
			return err
		}
	}
	var writes []store.Write
	for _, of := range keys {
		free := room[of.Key]
		var next time.Time
		if r := keyed.RateLimit; r != nil && free > 0 {
			// No more than there are starts to reserve by now: others would only be held back again.
			if free = min(free, lifecycle.StartsAhead(*r, g.pace(), starts[of], now)); free == 0 {
				next = starts[of].Add(time.Millisecond - g.pace().Ahead())
			} else {
				next = now.Add(time.Duration(free) * lifecycle.Spacing(*r))
			}
		}
		if free == 0 && next.IsZero() {
			// Who frees a permit looks again; what began without one frees none.
			if next = g.lookAgain(of); next.IsZero() {
				continue
			}
		}
		waiting, passed, err := g.waitingFor(ctx, of, max(free, 1))
		if err != nil {
			return err
		}
		if passed && next.IsZero() {
			next = now.Add(passedPause)
		}
		for _, t := range waiting[:min(free, len(waiting))] {
			if after := lifecycle.Admit(t, now); after != nil {
				writes = append(writes, store.Write{Before: t, After: after})
			}
		}
		if (len(waiting) > 0 || passed) && !next.IsZero() {
			g.lookAt(of, next)
		}
	}
	if len(writes) == 0 {
		return nil
	}
	written, err := g.store.Tasks.Writes(ctx, writes, store.Patience)
	for i, w := range written {
		of := store.LimitOf{Type: typ, Key: writes[i].Before.Options.LimitKey}
		switch {
		case w.Applied:
			if g.Admitted != nil {
				g.Admitted(writes[i].After)
			}
		case w.Unanswered, w.Refused != nil: // the next sweep looks again
		case w.Held, !letIn(w.Current, of, now): // the key still has room; the next look passes over a held one
			g.lookAt(of, now.Add(passedPause))
		}
	}
	g.wake()
	return err
}

// letIn reports whether the task, which somebody else has changed, may be claimed now by the room of the key.
func letIn(t *model.Task, of store.LimitOf, now time.Time) bool {
	return t != nil && !lifecycle.HeldBack(t) && !t.DueAt.IsZero() && !t.DueAt.After(now) && t.Options.LimitKey == of.Key
}

const (
	// passedPause is the pause before the next look at a key with a held task, or one that somebody has just changed.
	passedPause = time.Second
	// passedOver is how many such tasks of a key may stand before others.
	passedOver = 20
)

// waitingFor finds the tasks that wait for a key, the best first. Tasks that an open
// transaction holds do not block the others; passed reports that there are some.
func (g *Gate) waitingFor(ctx context.Context, of store.LimitOf, limit int) (waiting []*model.Task, passed bool, err error) {
	isHeld := func(t *model.Task) bool { return g.store.ProbeLater(t.ID) }
	waiting, err = g.store.Permits.HeldBack(ctx, of, limit)
	if err != nil || !slices.ContainsFunc(waiting, isHeld) {
		return waiting, false, err
	}
	waiting, err = g.store.Permits.HeldBack(ctx, of, limit+passedOver)
	waiting = slices.DeleteFunc(waiting, isHeld)
	return waiting[:min(len(waiting), limit)], true, err
}

// roomOf is how many executions of each key may begin now, by the permits.
func (g *Gate) roomOf(ctx context.Context, typ string, keys []store.LimitOf, keyed model.KeyLimit) (map[string]int, error) {
	room := make(map[string]int, len(keys))
	if keyed.MaxRunning == 0 {
		for _, of := range keys {
			room[of.Key] = perLook
		}
		return room, nil
	}
	names := make([]string, len(keys))
	for i, of := range keys {
		names[i] = of.Key
	}
	others, _, err := g.othersOf(ctx, typ)
	if err != nil {
		return nil, err
	}
	taken, err := g.store.Permits.KeysTaken(ctx, typ, names)
	for _, of := range keys {
		room[of.Key] = min(max(keyed.MaxRunning-taken[of.Key]-others.ofKey[of.Key], 0), perLook)
	}
	return room, err
}

// lookAt looks at a key at that time of the store, once.
func (g *Gate) lookAt(of store.LimitOf, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil || len(g.due) > 100_000 {
		return // the sweeper's, where there are too many
	}
	limit := keyRuleOf(g.types.Get(of.Type))
	if was := g.due[of]; was != nil {
		if was.limit == limit && !at.Before(was.at) || !was.timer.Stop() {
			return
		}
		g.looks.Done() // it was by a limit that has changed, or is later
	}
	g.looks.Add(1)
	k := &keyLook{at: at, limit: limit}
	g.due[of] = k
	k.timer = time.AfterFunc(at.Sub(g.store.Clock.Now()), func() {
		defer g.looks.Done()
		g.mu.Lock()
		if g.due[of] == k {
			delete(g.due, of)
		}
		g.mu.Unlock()
		ctx, cancel := context.WithTimeout(g.ctx, patience)
		defer cancel()
		g.report(g.Look(ctx, of.Type, []store.LimitOf{of}), "looking for the next task of a limit_key")
	})
}
