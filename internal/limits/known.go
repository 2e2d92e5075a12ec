package limits

import (
	"math/rand/v2"

	"github.com/mscheduler/mscheduler/model"
)

// What a process knows of the next tasks of limited types, see [candidates].

// Passes reports whether permits of the type pass on: it has max_running, and no rate.
func (g *Gate) Passes(typ string) bool {
	r := ruleOf(g.types.Get(typ))
	return r.maxRunning > 0 && r.rate == (model.RateLimit{})
}

// Learn notes tasks that were found and not granted, of types whose permits pass on.
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

// Candidates takes the ids of the next tasks of a type for n claims out of what is known, the
// best first, and a few more where others have been quicker lately.
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

// Chose notes how a choice went: so many were claimed by others before they were read, so many
// after that, and those that are left over may be chosen again.
func (g *Gate) Chose(typ string, gone, lost int, left []*model.Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.known[typ]; k != nil {
		k.adapt(gone, lost)
		k.add(left)
	}
}

// SearchWanted reports whether the candidates of a type are few or old, so that a search beside
// the claims is worth while. Whoever is told so calls [Gate.Found] in any case.
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

// Found takes over what a search found in the place of what was known; more says that there
// may be others. After an error what was known stays.
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
