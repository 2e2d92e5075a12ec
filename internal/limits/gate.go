package limits

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

// Gate is a process's side of the limits. It is safe for concurrent use; make one with
// [New], and close it.
type Gate struct {
	store *store.Store
	types *tasktypes.Cache
	log   zerolog.Logger
	wake  func() // there is room again: look for work

	// Admitted is called with tasks that this gate let back into the queue, at their old
	// places, before wake. It must not block; it is set before the gate is used. nil = no caller.
	Admitted func(*model.Task)

	queue *groupcommit.Queue[freeing]
	ctx   context.Context
	end   context.CancelFunc
	looks sync.WaitGroup

	marked atomic.Bool // that limits are used is written down

	sweeping clock.Lock
	looked   string        // the note of a key at which the last round stopped; "" = begin with the first
	passed   time.Duration // monotonic: when all keys had been looked at; 0 = never

	paced pacer

	mu    sync.Mutex
	waits map[string]*wait                // types without room
	took  map[string]lifecycle.PermitUse  // of each type the last permit, if the gate does not watch
	known map[string]*candidates          // the next tasks of types with max_running
	noted map[store.LimitOf]time.Duration // monotonic: when the wait for a key was written down
	due   map[store.LimitOf]*keyLook      // keys to look at when their next start comes

	settles map[string]*settling // by type: what began without its limits

	id      string   // this process's, in what it writes for others of the gates
	watcher *Watcher // nil = it does not look for permits that others free
}

// keyLook is a look at a key that is to come.
type keyLook struct {
	timer *time.Timer
	at    time.Time // the store's
	limit rule      // by which that is
}

// rule is what a type says of its limits as a whole, or of each of its keys.
type rule struct {
	maxRunning int
	rate       model.RateLimit // zero = none
}

func newRule(maxRunning int, rate *model.RateLimit) rule {
	r := rule{maxRunning: maxRunning}
	if rate != nil {
		r.rate = *rate
	}
	return r
}

func ruleOf(t *model.TaskType) rule {
	if t == nil {
		return rule{}
	}
	return newRule(t.MaxRunning, t.RateLimit)
}

func keyRuleOf(t *model.TaskType) rule {
	k := lifecycle.Keyed(t)
	return newRule(k.MaxRunning, k.RateLimit)
}

// How long a type without a free permit leaves the queries of a process that does not watch
// ([Gate.Watch]). A permit that this process frees ends that at once.
const (
	firstPause   = 25 * time.Millisecond
	longestPause = 500 * time.Millisecond
	patience     = 20 * time.Second // for one batch of writes
	freed        = 2000             // permits that may wait to be given back
)

// New makes a gate. wake is called when there is room again that this process knows of; it
// must not block.
func New(st *store.Store, types *tasktypes.Cache, log zerolog.Logger, wake func()) *Gate {
	g := &Gate{store: st, types: types, log: log, wake: wake,
		id: strconv.FormatUint(rand.Uint64(), 36), waits: map[string]*wait{}, took: map[string]lifecycle.PermitUse{}, known: map[string]*candidates{}, noted: map[store.LimitOf]time.Duration{}, due: map[store.LimitOf]*keyLook{}, settles: map[string]*settling{}}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.queue = groupcommit.New(freed, g.flush)
	return g
}

// Limited says whether a claim of the task needs a grant.
func (g *Gate) Limited(t *model.Task) bool {
	return t.Options.LimitKey != "" || lifecycle.Limited(g.types.Get(t.Type))
}

// LimitsType says whether the type limits its tasks as a whole.
func (g *Gate) LimitsType(typ string) bool { return lifecycle.Limited(g.types.Get(typ)) }

// Prompt says whether a claim of the type must only be written for what can start at once:
// what it is granted is few, or soon lost.
func (g *Gate) Prompt(typ string) bool {
	t := g.types.Get(typ)
	return lifecycle.Limited(t) || t != nil && t.KeyLimit != nil && t.KeyLimit.RateLimit != nil
}

// Pending is when the next of what waits for room may have it, keys included; zero = nothing
// waits that this process knows of.
func (g *Gate) Pending() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := g.next(func(*wait) bool { return true })
	for _, k := range g.due {
		next = clock.Sooner(next, k.at)
	}
	return next
}

// Waiting says whether the type has no room at the moment, so that nobody needs to look for
// its tasks.
func (g *Gate) Waiting(typ string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	w, is := g.waits[typ]
	return is && g.lasts(typ, w, g.store.Clock.Now())
}

// lasts says whether the wait goes on: one by a rule that was changed does not.
func (g *Gate) lasts(typ string, w *wait, now time.Time) bool {
	return (w.look != nil || w.until.After(now)) && w.rule == ruleOf(g.types.Get(typ))
}

// Next is when a search may find room for a type that waits; zero = none waits for that. A
// type for which the gate looks itself is not among them.
func (g *Gate) Next() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next(func(w *wait) bool { return w.look == nil })
}

// AnyWaits reports whether any type waits for room.
func (g *Gate) AnyWaits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.next(func(*wait) bool { return true }).IsZero()
}

// Lacks reports whether tasks have waited for a permit lately, as far as this process knows: of a type, or of a key.
func (g *Gate) Lacks() bool {
	if g.AnyWaits() {
		return true
	}
	now := g.store.Local().Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.noted {
		if now-at < noteAgain {
			return true
		}
	}
	return false
}

// next is when the first of the waits that count ends. The caller holds mu.
func (g *Gate) next(counts func(*wait) bool) (next time.Time) {
	now := g.store.Clock.Now()
	for typ, w := range g.waits {
		if counts(w) && g.lasts(typ, w, now) {
			next = clock.Sooner(next, w.until)
		}
	}
	return next
}

// AtMost is how many tasks of the types are worth looking for, where n fit: of types with
// few permits or starts a few more than those, since some will be held back.
func (g *Gate) AtMost(types []string, n int) int {
	sum := 0
	for _, typ := range types {
		t := g.types.Get(typ)
		if !lifecycle.Limited(t) {
			return n
		}
		most := n
		if t.MaxRunning > 0 {
			most = min(most, t.MaxRunning)
		}
		if r := t.RateLimit; r != nil {
			most = min(most, lifecycle.MostStarts(*r, g.pace()))
		}
		sum += most
	}
	return min(n, 2*sum+16)
}

// rest takes the type out of the queries until this process may reserve its next start. A
// little later, and not at the same time in every process: then there are several to be had
// at once.
func (g *Gate) rest(typ string, next time.Time, r model.RateLimit) {
	until := next.Add(rand.N(lifecycle.Tolerance(r)/3) + time.Millisecond - g.pace().Ahead())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(typ)
	g.waits[typ] = &wait{until: until, rule: ruleOf(g.types.Get(typ))}
}

// Relearned forgets for what types wait by limits that were changed, and says whether any did.
func (g *Gate) Relearned() (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for typ, w := range g.waits {
		if w.rule != ruleOf(g.types.Get(typ)) {
			g.forget(typ)
			changed = true
		}
	}
	return changed
}

// roomy brings the type back; was says whether it waited.
func (g *Gate) roomy(typ string) (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.forget(typ)
}

// forget ends the wait of a type; was reports whether it waited. The caller holds mu.
func (g *Gate) forget(typ string) (was bool) {
	w := g.waits[typ]
	if w != nil {
		g.unplan(w)
		delete(g.waits, typ)
	}
	return w != nil
}

// Wait returns when all permits that were handed over to be freed are, and what they kept
// back has been looked at; or when ctx ends.
func (g *Gate) Wait(ctx context.Context) error { return g.queue.Wait(ctx) }

// Close ends the gate; what it had still to do is left to the sweeper.
func (g *Gate) Close() {
	g.end()
	_ = g.queue.Close(g.ctx) // ends at once: its context has
	g.mu.Lock()
	for of, k := range g.due {
		if k.timer.Stop() {
			g.looks.Done()
		}
		delete(g.due, of)
	}
	for typ := range g.waits {
		g.forget(typ)
	}
	g.mu.Unlock()
	g.looks.Wait()
}
