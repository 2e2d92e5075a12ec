package limits

import (
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// The knowledge of a process about the next tasks of limited types, see [candidates].

// Passes reports whether permits of the type pass on: it has max_running and no rate limit.
func (g *Gate) Passes(typ string) bool {
	r := ruleOf(g.types.Get(typ))
	return r.maxRunning > 0 && r.rate == (model.RateLimit{})
}

// Learn records tasks that were found and not granted, of types that start when there is a slot, see [Gate.Prompt].
func (g *Gate) Learn(tasks []*model.Task) {
	if len(tasks) == 0 {
		return
	}
	_, of := grouped(tasks, func(t *model.Task) string { return t.Type })
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	for typ, some := range of {
		if !g.Prompt(typ) {
			continue
		}
		if g.known[typ] == nil {
			g.known[typ] = &candidates{}
		}
		g.known[typ].learn(some, now)
	}
}

// with calls f with what is known of a type, at a time of the monotonic clock, unless that is nothing.
func (g *Gate) with(typ string, f func(k *candidates, now time.Duration)) {
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.known[typ]; k != nil {
		f(k, now)
	}
}

// Knows reports whether a permit of the type that frees may pass on: there is a candidate.
func (g *Gate) Knows(typ string) (known bool) {
	g.with(typ, func(k *candidates, now time.Duration) { known = k.usable(now) })
	return known
}

// Best is the priority of the best candidate of the type; ok is false where none is known.
func (g *Gate) Best(typ string) (priority int, ok bool) {
	g.with(typ, func(k *candidates, now time.Duration) {
		if ok = k.usable(now) && len(k.list) > 0; ok {
			priority = k.list[0].priority
		}
	})
	return priority, ok
}

// Candidates removes the ids of the next tasks of a type for n claims from the list, the best
// first, and a few more if other processes have been quicker lately.
func (g *Gate) Candidates(typ string, n int) (ids []string) {
	g.with(typ, func(k *candidates, now time.Duration) {
		if k.usable(now) {
			ids = k.take(n, rand.IntN)
		}
	})
	return ids
}

// Chose records the outcome of a choice: how many tasks others claimed before they were read, and
// how many after that. The left ones may be chosen again.
func (g *Gate) Chose(typ string, gone, lost int, left []*model.Task) {
	g.with(typ, func(k *candidates, _ time.Duration) {
		k.adapt(gone, lost)
		k.add(left)
	})
}

// SearchWanted reports whether the candidates of a type are few or old, so that a search beside
// the claims is worthwhile. After true the caller must call [Gate.Found] in any case.
func (g *Gate) SearchWanted(typ string) (wanted bool) {
	g.with(typ, func(k *candidates, now time.Duration) {
		wanted = k.wanted(now)
		k.searching = k.searching || wanted
	})
	return wanted
}

// Found replaces the candidates with the result of a search; more means that there may be
// others. After an error the old candidates stay.
func (g *Gate) Found(typ string, tasks []*model.Task, more bool, err error) {
	g.with(typ, func(k *candidates, now time.Duration) {
		if k.searching = false; err == nil {
			k.replace(tasks, more, now)
		}
	})
}
