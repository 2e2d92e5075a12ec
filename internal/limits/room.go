package limits

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// A process that watches its types ([Gate.Watch]) learns of a free permit by looking at the
// permits, which are few, and not by a search for tasks.

// How a process waits for a permit of a type.
const (
	// searchAfter is how long it only looks at permits. Then it searches once, because the
	// tasks may be gone, or there may be a better one.
	searchAfter = 5 * time.Second
	longestLook = 250 * time.Millisecond // between two looks
	// wishedLook is the longest time between two looks in the seconds after a wish: a permit that is
	// freed for this process is idle until it looks. After quickWishes without a permit there are no
	// more such looks, because executions may take hours.
	wishedLook  = 40 * time.Millisecond
	quickWishes = 3
	// countedEasily is how many permits a server counts for one look without noticing it. Of more
	// there are fewer looks.
	countedEasily = 1000
	// wishAfter is how long a process without a permit of a type waits before it asks those
	// that pass theirs on to free one, and the interval of its requests.
	wishAfter = time.Second
	// wishLasts is how long other processes honour that request.
	wishLasts = 3 * wishAfter
	// aside is how long a process that freed a permit for another does not take it back.
	aside = 2 * longestLook
)

// Watcher connects a gate with the worker for types that wait for a permit.
type Watcher struct {
	// Room is called when n permits of a waiting type are free and a candidate is known. It
	// must not block.
	Room func(typ string, n int)
	// Holds reports whether the worker has executions of the type.
	Holds func(typ string) bool
}

// Watch makes the gate look for permits of waiting types. Without it a waiting type returns to
// the queries after a pause, which suits callers that search only on request. Call it before
// the gate is used.
func (g *Gate) Watch(w Watcher) { g.watcher = &w }

// wait is a type that leaves the claim queries.
type wait struct {
	until time.Time     // the store's
	pause time.Duration // doubled each time that there was no permit
	rule  rule          // the limit that leaves no room

	look   *time.Timer   // nil = the type returns at until
	since  time.Duration // monotonic: when it began to wait
	asked  time.Duration // monotonic: when a wish was last due; 0 = never
	wished time.Duration // monotonic: when a permit was last wished for; 0 = never
}

// full takes the type out of the queries until a permit may be free.
func (g *Gate) full(typ string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.waitOf(typ)
	longest := longestPause
	switch {
	case g.watcher != nil:
		longest = min(longestLook*w.looksApart(), searchAfter/2)
	case w.wished > 0 && g.store.Local().Monotonic()-w.wished < wishLasts:
		longest = aside / 4 // a caller that asks four times a second comes while the permit is left alone
	}
	w.pause = min(max(2*w.pause, firstPause), longest)
	g.waitFor(typ, w, w.pause*3/4+rand.N(w.pause/2))
}

// looksApart is how many times as far apart as those at few permits looks at so many are.
func (w *wait) looksApart() time.Duration { return time.Duration(1 + w.rule.maxRunning/countedEasily) }

// sooner looks soon, if the type still waits.
func (g *Gate) sooner(typ string, w *wait) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waits[typ] == w {
		w.pause = min(w.pause, wishedLook*w.looksApart())
		g.waitFor(typ, w, w.pause)
	}
}

// stepAside leaves the permits of the type to the others for a moment.
func (g *Gate) stepAside(typ string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waitFor(typ, g.waitOf(typ), aside)
}

// waitOf returns the wait of a type by its limit now; it begins one if there is none. The caller
// holds mu.
func (g *Gate) waitOf(typ string) *wait {
	w := g.waits[typ]
	if w == nil {
		w = &wait{since: g.store.Local().Monotonic()}
		g.waits[typ] = w
	}
	w.rule = ruleOf(g.types.Get(typ))
	return w
}

// waitFor schedules the next look, or the end of the wait. The caller holds mu.
func (g *Gate) waitFor(typ string, w *wait, d time.Duration) {
	w.until = g.store.Clock.Now().Add(d)
	g.unplan(w)
	if g.watcher == nil || g.ctx.Err() != nil {
		return
	}
	g.looks.Add(1)
	var look *time.Timer
	look = time.AfterFunc(d, func() {
		defer g.looks.Done()
		g.mu.Lock()
		mine := w.look == look // else it was scheduled anew
		g.mu.Unlock()
		if mine {
			g.lookForRoom(typ, w)
		}
	})
	w.look = look
}

// unplan cancels the scheduled look. The caller holds mu.
func (g *Gate) unplan(w *wait) {
	if w.look != nil && w.look.Stop() {
		g.looks.Done()
	}
	w.look = nil
}

// lookForRoom checks whether the type has a free permit.
func (g *Gate) lookForRoom(typ string, w *wait) {
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	lasts, search := g.waits[typ] == w && w.rule == ruleOf(g.types.Get(typ)), now-w.since >= searchAfter
	g.mu.Unlock()
	if !lasts {
		return
	}
	free := 0
	if !search {
		var err error
		if free, err = g.room(ctx, typ); err != nil {
			g.report(err, "looking for a free permit")
		}
	}
	switch {
	case g.ctx.Err() != nil:
	case free > 0 && g.Knows(typ):
		g.full(typ) // until the worker has tried
		g.watcher.Room(typ, free)
	case free > 0 || search:
		g.roomy(typ)
		g.wake()
	default:
		g.full(typ)
		if g.wish(ctx, typ, w) {
			g.sooner(typ, w)
		}
	}
}

// room returns how many permits of the type are free.
func (g *Gate) room(ctx context.Context, typ string) (int, error) {
	limit, err := g.limitOf(ctx, typ)
	if err != nil {
		return 0, err
	}
	return g.store.Permits.NumberFree(ctx, store.LimitOf{Type: typ}, limit)
}

// limitOf returns the limit by which permits of the type are taken now.
func (g *Gate) limitOf(ctx context.Context, typ string) (store.Limit, error) {
	others, settled, err := g.othersOf(ctx, typ)
	return store.Limit{Most: ruleOf(g.types.Get(typ)).maxRunning, Others: others.ofType, Settled: settled}, err
}

// wish asks other processes to free a permit, after a while without any. A process that passes its
// permits on keeps them as long as it knows tasks, even if only this worker may run others. quick
// reports whether an answer may be there soon.
func (g *Gate) wish(ctx context.Context, typ string, w *wait) (quick bool) {
	if g.watcher.Holds(typ) || !g.Knows(typ) {
		return false
	}
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	k, due := g.known[typ], w.wishDue(now)
	if due {
		k.wishes++
		w.wished = now
	}
	quick = w.wished > 0 && k.wishes <= quickWishes
	g.mu.Unlock()
	if due {
		g.report(g.store.Permits.Wish(ctx, typ, g.id), "asking for a permit")
	}
	return quick
}

// wishUnwatched is [Gate.wish] for a gate that does not watch: one of its callers has just searched, and got no permit.
// While the last permit that it took is in use, it wishes for none: others would lose theirs one by one.
func (g *Gate) wishUnwatched(ctx context.Context, typ string) {
	if g.watcher != nil || !g.Passes(typ) {
		return
	}
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	w := g.waits[typ]
	due := w != nil && w.wishDue(now)
	last, took := g.took[typ]
	g.mu.Unlock()
	if !due {
		return
	}
	if took {
		used, err := g.store.Permits.OfExecutions(ctx, last.TaskID, []string{last.ExecID})
		if g.report(err, "reading a permit"); err != nil || len(used) > 0 {
			return
		}
	}
	g.mu.Lock()
	w.wished = now
	g.mu.Unlock()
	g.report(g.store.Permits.Wish(ctx, typ, g.id), "asking for a permit")
}

// tookUnwatched notes a permit that a gate that does not watch has taken.
func (g *Gate) tookUnwatched(typ string, p lifecycle.Permit) {
	if g.watcher == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.took[typ] = p.PermitUse
	}
}

// wishDue reports whether it is time for a wish, and notes it. The caller holds mu.
func (w *wait) wishDue(now time.Duration) bool {
	due := now-max(w.since, w.asked) >= wishAfter
	if due {
		w.asked = now
	}
	return due
}

// wishCheckDue reports whether it is time to look for wishes of others.
func (c *candidates) wishCheckDue(now time.Duration) bool { return now-c.wishCheck >= wishAfter }

// Yield reports whether to free the next permit of the type instead of passing it on, because
// another process has waited for one for a while. It checks once a second.
func (g *Gate) Yield(ctx context.Context, typ string) (bool, error) {
	look := false
	g.with(typ, func(k *candidates, now time.Duration) {
		if look = k.wishCheckDue(now); look {
			k.wishCheck = now
		}
	})
	if !look {
		return false, nil
	}
	wished, err := g.store.Permits.AnswerWish(ctx, typ, g.id, wishLasts)
	if wished {
		g.stepAside(typ)
	}
	return wished, err
}
