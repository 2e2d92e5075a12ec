package limits

import (
	"math/rand/v2"

	"github.com/mscheduler/mscheduler/model"
)

// The knowledge of a process about the next tasks of limited types, see [candidates].

// Passes reports whether permits of the type pass on: it has max_running and no rate limit.
func (g *Gate) Passes(typ string) bool {
	r := ruleOf(g.types.Get(typ))
	return r.maxRunning > 0 && r.rate == (model.RateLimit{})
}

// Learn records tasks that were found and not granted, of types whose permits pass on.
func (g *Gate) Learn(tasks []*model.Task) {
	if len(tasks) == 0 {
		return
	}
	of := map[string][]*model.Task{}
	for _, t := range tasks {
		of[t.Type] = append(of[t.Type], t)
	}
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	for typ, some := range of {
		if !g.Passes(typ) {
			continue
		}
		if g.known[typ] == nil {
			g.known[typ] = &candidates{}
		}
		g.known[typ].learn(some, now)
	}
}

// Knows reports whether a permit of the type that frees may pass on: there is a candidate.
func (g *Gate) Knows(typ string) bool {
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[typ]
	return k != nil && k.usable(now)
}

// Best is the priority of the best candidate of the type; ok is false where none is known.
func (g *Gate) Best(typ string) (priority int, ok bool) {
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[typ]
	if k == nil || !k.usable(now) || len(k.list) == 0 {
		return 0, false
	}
	return k.list[0].priority, true
}

// Candidates removes the ids of the next tasks of a type for n claims from the list, the best
// first, and a few more if other processes have been quicker lately.
func (g *Gate) Candidates(typ string, n int) []string {
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[typ]
	if k == nil || !k.usable(now) {
		return nil
	}
	return k.take(n, rand.IntN)
}

// Chose records the outcome of a choice: how many tasks others claimed before they were read, and
// how many after that. The left ones may be chosen again.
func (g *Gate) Chose(typ string, gone, lost int, left []*model.Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.known[typ]; k != nil {
		k.adapt(gone, lost)
		k.add(left)
	}
}

// SearchWanted reports whether the candidates of a type are few or old, so that a search beside
// the claims is worthwhile. After true the caller must call [Gate.Found] in any case.
func (g *Gate) SearchWanted(typ string) bool {
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[typ]
	if k == nil || !k.wanted(now) {
		return false
	}
	k.searching = true
	return true
}

// Found replaces the candidates with the result of a search; more means that there may be
// others. After an error the old candidates stay.
func (g *Gate) Found(typ string, tasks []*model.Task, more bool, err error) {
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[typ]
	switch {
	case k == nil:
	case err != nil:
		k.searching = false
	default:
		k.replace(tasks, more, now)
	}
}
