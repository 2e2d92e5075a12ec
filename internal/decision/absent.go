package decision

import (
	"slices"
	"strings"
	"time"
)

// An engine that is killed stays listed for a while. So that nobody waits for its turns all that
// time, an engine that lets its turns pass seems to be away. Each engine judges the others by itself:
//
//   - A turn has passed if this engine has found something during it, and decides about it later.
//   - An engine that has let tooMany turns in a row pass has none any more: the next one decides at once.
//   - It has turns again when it gives a sign of life: its heartbeat is renewed, something is decided
//     in its turn, or somebody is quicker with what this engine decides in its place.
//
// Only those that follow an engine come to judge it, as only they wait for it. Where two engines differ,
// a document waits for one turn, or both decide about it. The guard of the write lets one of them
// through, and the other one learns from it: another is there, or others take its turns. An engine
// whose turns others have taken so often leaves them to the others until they leave one to it.
const tooMany = 3

// peer is an engine as another one sees it.
type peer struct {
	id     string
	beat   time.Time // its last heartbeat that is known: compared with the next one of its own alone
	missed int       // how many of its turns in a row it has let pass; of this engine itself: others have taken
}

// sights are what an engine has found that was to be decided.
type sights struct {
	before, left map[thing]sight // by the last round, and by this one: what it left to others
	mine         map[string]span // by document: what it decides about in this round
	signs        map[int]bool    // by place: there was a sign of life in this round; false = it has missed a turn
}

// thing is something that has to be decided about a document.
type thing struct {
	id    string
	since int64 // in milliseconds
}

// sight says how many turns were over when a thing was found first and last.
type sight struct{ first, last int }

// span are the engines whose turns this one has seen pass, and those that have none any more.
type span struct {
	passed, skipped []int
	own             bool // it is the first
}

// away says whether an engine seems to be away.
func (k *rank) away(place int) bool { return k.peers[place].missed >= tooMany }

// become takes in a list of the engines that are alive.
func (k *rank) become(id string, alive []peer) {
	slices.SortFunc(alive, func(a, b peer) int { return strings.Compare(a.id, b.id) })
	known := make(map[string]peer, len(k.peers))
	for _, p := range k.peers {
		known[p.id] = p
	}
	place := 0
	for i, p := range alive {
		if was := known[p.id]; was.beat.Equal(p.beat) {
			alive[i].missed = was.missed
		}
		if p.id == id {
			place = i
		}
	}
	*k = rank{place: place, peers: alive} // what was seen had other places
	k.count()
}

// count counts those that seem to be away, which are never all.
func (k *rank) count() {
	k.absent = 0
	for place := range k.peers {
		if k.away(place) {
			k.absent++
		}
	}
	if k.absent > 0 && k.absent == len(k.peers) {
		k.stay()
	}
}

// stay gives this engine its turns back.
func (k *rank) stay() {
	k.peers[k.place].missed = 0
	k.absent--
}

// begin begins a round.
func (k *rank) begin() {
	k.seen = sights{before: k.seen.left, left: map[thing]sight{}, mine: map[string]span{}, signs: map[int]bool{}}
}

// found notes that something is to be decided about a document, and says whether it is this engine's
// turn.
func (k *rank) found(id string, since, now time.Time) (mine bool) {
	t, over := thing{id, since.UnixMilli()}, turnsOver(now.Sub(since))
	s, again := k.seen.before[t]
	if !again {
		s.first = over
	}
	delete(k.seen.before, t)
	first := k.first(id)
	if first == k.place && over > 0 && len(k.peers) > 0 && k.away(k.place) {
		k.stay() // the others wait for it
	}
	if k.holder(first, over) != k.place {
		k.seen.left[t] = sight{s.first, over}
		return false
	}
	m := k.seen.mine[id]
	m.own = over == 0 && first == k.place && len(k.peers) > 0
	for n := s.first; n < min(over, s.first+len(k.peers)); n++ {
		if place := k.holder(first, n); place != k.place {
			m.passed = append(m.passed, place)
		}
	}
	for place := first; place != k.place; place = (place + 1) % len(k.peers) {
		if k.away(place) {
			m.skipped = append(m.skipped, place)
		}
	}
	k.seen.mine[id] = m
	return true
}

// forget notes that something was decided by this process, apart from its engine's rounds.
func (k *rank) forget(id string, since time.Time) {
	delete(k.seen.before, thing{id, since.UnixMilli()})
}

// decided notes what became of a decision in this engine's turn: it was written, or somebody else was
// quicker.
func (k *rank) decided(id string, written bool) {
	m := k.seen.mine[id]
	if m.own {
		k.seen.signs[k.place] = k.seen.signs[k.place] || written
	}
	for _, place := range m.passed {
		k.seen.signs[place] = k.seen.signs[place] || !written
	}
	for _, place := range m.skipped {
		if !written {
			k.seen.signs[place] = true
		}
	}
}

// end ends a round, and judges the others by it. all says that the round has found all there was.
func (k *rank) end(all bool) {
	if all {
		for t, s := range k.seen.before { // it is gone: somebody has decided
			k.seen.signs[k.holder(k.first(t.id), s.last)] = true
		}
	}
	for place, sign := range k.seen.signs {
		if sign {
			k.peers[place].missed = 0
		} else {
			k.peers[place].missed++
		}
	}
	k.count()
}

// interrupted forgets what was found: nobody could decide for some time.
func (k *rank) interrupted() { k.seen = sights{} }
