// Package fetchplan decides where a worker looks for due tasks, for how many, and when next.
// It does no I/O: a [Plan] takes what a fetch saw and won, and says what the next one does.
//
//	Room ─▶ Turn ─▶ Aim ─▶ (the query) ─▶ Saw ─▶ (the claim) ─▶ Done ─▶ Next
//
// Three rules are behind it: spread.go keeps the workers of a crowd apart, lead.go and batch.go
// keep handlers from running out of tasks, refusedwalk.go passes what the worker may not run.
package fetchplan

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/model"
)

// Held is what a process holds.
type Held struct {
	Buffered int // tasks that wait for a slot
	Running  int
	Started  uint64 // handlers ever started
}

// Plan is the knowledge of one worker. Make one with [New]. Room, Enough, Ran, StartRate
// and Learn are safe for concurrent use; the others belong to one fetch at a time.
type Plan struct {
	slots  int
	random *rand.Rand

	mu   sync.Mutex // of rate and lead
	rate rate
	lead lead

	spread   spread
	refused  refusedWalk
	next     time.Duration // monotonic: no fetch before, because of the crowd
	turnFrom string        // where the next look begins among very many types
	at       time.Time     // the store's: what was due until then was found
	full     bool          // the last look at the head looked at everything
	filled   bool          // and found as many as it looked for
	fullAt   time.Duration // monotonic: when such a look was
	ended    bool          // a backlog has ended since then
}

// New returns the plan of a worker with that many slots.
func New(slots int, random *rand.Rand) *Plan { return &Plan{slots: slots, random: random} }

// perSecond is how many handlers start. Where they ran out of tasks it is how many could start. The
// caller holds mu.
func (p *Plan) perSecond(h Held, now time.Duration) float64 {
	observed := p.rate.observe(now, h.Started)
	if h.Running < p.slots && p.lead.hungry {
		return max(observed, p.rate.possible(p.slots))
	}
	return observed
}

// StartRate is how many handlers started a second, as last observed, or could start.
func (p *Plan) StartRate() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.rate.perSecond, p.rate.possible(p.slots))
}

// Ran records how long a handler ran.
func (p *Plan) Ran(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate.ranFor(d)
}

// Room is how many tasks to fetch now. alone says that no other worker wants the same tasks.
func (p *Plan) Room(h Held, alone bool, now time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead.toFetch(p.slots-h.Running, h.Buffered, p.perSecond(h, now), alone)
}

// Enough is how many tasks may wait for a slot when a fetch begins.
func (p *Plan) Enough(h Held, now time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead.enough(p.slots-h.Running, p.perSecond(h, now))
}

// Learn records what was held when a fetch began and when it was done, its duration, how many
// tasks it won, and whether it left more to find.
func (p *Plan) Learn(before, after Held, took time.Duration, won int, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lead.learn(before, after, took, won)
	if !more { // the next tasks may be others
		p.rate.returned, p.rate.ran = 0, 0
	}
}

// Turn is the next part of the types, which are sorted, where one query may name most of them.
// last says that the others have had their turns: a worker does not rest before.
func (p *Plan) Turn(types []string, most int) (some []string, last bool) {
	if len(types) <= most {
		p.turnFrom = ""
		return types, true
	}
	from, _ := slices.BinarySearch(types, p.turnFrom)
	if from == len(types) {
		from = 0
	}
	to := min(from+most, len(types))
	if p.turnFrom = ""; to < len(types) {
		p.turnFrom = types[to]
	}
	return types[from:to], to == len(types)
}

// Crowd expects so many workers to fetch at once, as when a fleet starts on a backlog.
func (p *Plan) Crowd(workers int) { p.spread.crowd(workers) }

// Stand says which of the workers this one is, in an order that all of them know, at a time of the
// store's. So each of a crowd looks in a part of the queue that is its own for a while.
func (p *Plan) Stand(rank int, at time.Time) { p.spread.stand(rank, at) }

// WantsTail returns the first task of the part of the queue whose end is to be asked for first;
// nil = none is.
func (p *Plan) WantsTail(now time.Duration) *model.Task {
	if p.refused.offset(now) > 0 || !p.spread.wantsTail(now) {
		return nil
	}
	return p.spread.field.first
}

// SawTail records the tail that was asked for.
func (p *Plan) SawTail(tail time.Time, now time.Duration) { p.spread.sawTail(tail, now) }

// Aim returns where to look for n tasks, in a fleet of so many workers.
func (p *Plan) Aim(n int, h Held, workers int, now time.Duration) Aim {
	if past := p.refused.offset(now); past > 0 {
		return Aim{atHead: true, skip: past, take: n}
	}
	p.mu.Lock()
	quick := min(p.perSecond(h, now)*quickShare.Seconds(), MaxBatch)
	p.mu.Unlock()
	return p.spread.look(n, int(quick), workers, now, p.random)
}

// For is the aim as package claim takes it. refusedFull says that more tasks are refused to the
// worker than it can leave out.
func (a Aim) For(refusedFull bool) claim.Aim {
	return claim.Aim{
		AtHead: a.atHead, Whole: a.atHead && (a.skip > 0 || refusedFull),
		Skip: a.skip, Take: a.take, Scout: a.scout, Place: a.place,
	}
}

// Saw records what a look found, as of the beginning of it. again asks for another look in its
// place.
func (p *Plan) Saw(a Aim, got claim.Catch, workers int, now time.Duration) (again bool) {
	p.Looked(got)
	a.take = got.Take
	walks := a.atHead && a.skip > 0
	return !walks && p.spread.saw(a, got.Queue, workers, now, p.random)
}

// Looked records when a look was, and whether it looked at everything.
func (p *Plan) Looked(got claim.Catch) {
	if p.at = got.At; got.AtHead {
		p.full = got.Full
	}
	if got.Trip > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lead.trip = got.Trip
	}
}

// LastLook is until when what was due was found, by the store's clock, and whether the last look
// at the head looked at everything.
func (p *Plan) LastLook() (at time.Time, full bool) { return p.at, p.full }

// Fetched is how a fetch went.
type Fetched struct {
	Got        claim.Catch
	Took, Lost int
	// OnlyRefused: nothing was claimable, and more is refused than can be left out.
	OnlyRefused bool
	Busy        time.Duration // for how long it kept the server busy; 0 = the next need not wait
	Workers     int
	Ended       time.Duration // monotonic
}

// Done records how a fetch went. more says that there is likely more where it looked. anew says
// that another look must forget where tasks are known to be.
func (p *Plan) Done(f Fetched) (more, anew bool) {
	p.spread.learn(f.Took, f.Lost, f.Workers)
	p.next = f.Ended + p.spread.rest(f.Busy)
	found, take := len(f.Got.Tasks), f.Got.Take
	if !p.refused.learn(f.Ended, take, found < take, f.OnlyRefused) {
		return false, false
	}
	if p.priorityEnded(f.Got, f.Ended) {
		return true, true
	}
	return found >= take || !f.Got.AtHead || f.Lost > 0 || f.Took < found && f.Took > 0, false
}

// Next is the monotonic time before which the crowd should not see another fetch.
func (p *Plan) Next() time.Duration { return p.next }

// endedPause is the time between full looks because backlogs have ended.
const endedPause = claim.FullEvery / 4

// priorityEnded reports whether a backlog has ended, of one priority perhaps, and a full look is
// due: what there is of other priorities may not be known to be in use, and only such a look finds
// it.
func (p *Plan) priorityEnded(got claim.Catch, now time.Duration) bool {
	if !got.AtHead {
		return false
	}
	filled := p.filled
	p.filled = len(got.Queue) >= got.Take
	if got.Full {
		p.fullAt, p.ended = now, false
		return false
	}
	p.ended = p.ended || filled && !p.filled
	if !p.ended || now-p.fullAt < endedPause {
		return false
	}
	p.ended = false
	return true
}

// FullIn is how long a worker rests at most before it looks at everything: until soon after a backlog
// has ended. A look whose time has passed was not possible, because all types wait, say.
func (p *Plan) FullIn(now time.Duration) time.Duration {
	by := p.fullAt + claim.FullEvery
	if p.ended {
		by = p.fullAt + endedPause
	}
	if by <= now {
		return claim.FullEvery
	}
	return by - now
}
