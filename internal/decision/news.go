package decision

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// news is what a decider hears in its own process, without asking the database. It is safe for
// concurrent use.
type news struct {
	mu      sync.Mutex
	bell    chan<- struct{} // of the engine that runs; nil = none does
	decided bool            // somebody else than the engine has: a person, or whoever appended to a stream
	ends    []store.OutboxLife
	waits   map[heardEnd]int // the places in ends of those that nobody has told
}

// heardEnd names an end: a life may end once more, when a person resolves it.
type heardEnd struct {
	id              string
	generation, rev int64 // the rev is that of the last entry
}

func endOf(t *model.Task) heardEnd {
	return heardEnd{t.ID, t.Generation, t.Outbox[len(t.Outbox)-1].Rev}
}

// maxNews is how many ends wait for the engine. The looks find those beyond.
const maxNews = 10_000

func (n *news) listen(bell chan<- struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bell = bell; bell == nil {
		n.ends, n.waits = nil, nil // the looks of another engine find them
	}
}

func (n *news) ofDecision() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.decided = true; n.bell != nil {
		clock.Wake(n.bell)
	}
}

func (n *news) ofEnd(t *model.Task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bell != nil && len(n.ends) < maxNews {
		if n.waits == nil {
			n.waits = map[heardEnd]int{}
		}
		n.waits[endOf(t)] = len(n.ends)
		n.ends = append(n.ends, heardOf(t))
		clock.Wake(n.bell)
	}
}

// maxReturned is how many bytes of results are kept of an end that was heard of.
const maxReturned = 1 << 10

// heardOf is the end of a task as a look reads it, or with its results where they are small.
func heardOf(t *model.Task) store.OutboxLife {
	slim := *t
	slim.Args, slim.Steps, slim.Checkpoint = bson.RawValue{}, nil, bson.RawValue{}
	slim.WorkerStates = slices.Clone(t.WorkerStates)
	returned := len(t.Result.Value)
	for i := range slim.WorkerStates {
		w := &slim.WorkerStates[i]
		w.Checkpoint = bson.RawValue{}
		returned += len(w.Returns.Value)
	}
	if returned <= maxReturned {
		return store.OutboxLife{Task: &slim, Returned: true}
	}
	slim.Result = bson.RawValue{}
	for i := range slim.WorkerStates {
		slim.WorkerStates[i].Returns = bson.RawValue{}
	}
	return store.OutboxLife{Task: &slim}
}

// told leaves out an end that is known from a look.
func (n *news) told(t *model.Task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, there := n.waits[endOf(t)]; there {
		n.ends[i].Task = nil
		delete(n.waits, endOf(t))
	}
}

// takeDecided says whether somebody else has decided since it was asked last.
func (n *news) takeDecided() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	decided := n.decided
	n.decided = false
	return decided
}

func (n *news) takeEnds() []store.OutboxLife {
	n.mu.Lock()
	defer n.mu.Unlock()
	ends := slices.DeleteFunc(n.ends, func(l store.OutboxLife) bool { return l.Task == nil })
	n.ends, n.waits = nil, nil
	return ends
}

// crossedFor is how long this engine leaves a document to its rank after another engine's decision
// has crossed one about an end of this process.
const crossedFor = 5 * time.Second

func (d *Decider[D]) news() *news { return &d.heard }

func (d *Decider[D]) prompt(kind string) bool { return d.Prompt && kind == d.Planner.Kind() }

// hear takes the news. soon says that a look is to come soon: something was decided.
func (d *Decider[D]) hear(ctx context.Context) (soon bool) {
	decided := d.heard.takeDecided()
	began, ends := clock.Read(d.Store.Local()), d.takeHeard()
	if len(ends) == 0 {
		return decided
	}
	if _, err := d.Decide(ctx, began, nil, ends, d.Store.Clock.Now()); err != nil {
		return true // a look finds them, and says what is wrong
	}
	d.noteCrossed(ends)
	d.flush(ctx, lazily) // the look need not find them
	return true
}

// takeHeard returns the ends that were heard of, but for those of documents that are left to the ranks.
func (d *Decider[D]) takeHeard() []store.OutboxLife {
	now := d.Store.Local().Monotonic()
	for id, at := range d.crossed {
		if now-at >= crossedFor {
			delete(d.crossed, id)
		}
	}
	return slices.DeleteFunc(d.heard.takeEnds(), func(l store.OutboxLife) bool {
		_, crossed := d.crossed[d.Planner.Of(l)]
		return crossed
	})
}

// noteCrossed leaves documents to the ranks whose ends were heard of, and are not told.
func (d *Decider[D]) noteCrossed(ends []store.OutboxLife) {
	for _, l := range ends {
		if !d.wasTold(l) {
			d.crossed[d.Planner.Of(l)] = d.Store.Local().Monotonic()
		}
	}
}
