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
}

// maxNews is how many ends wait for the engine. The looks find those beyond.
const maxNews = 10_000

func (n *news) listen(bell chan<- struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bell = bell; bell == nil {
		n.ends = nil // the looks of another engine find them
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
		slim := *t // as a look reads it
		slim.Args, slim.Steps = bson.RawValue{}, nil
		n.ends = append(n.ends, store.OutboxLife{Task: &slim})
		clock.Wake(n.bell)
	}
}

func (n *news) take() (decided bool, ends []store.OutboxLife) {
	n.mu.Lock()
	defer n.mu.Unlock()
	decided, ends = n.decided, n.ends
	n.decided, n.ends = false, nil
	return decided, ends
}

// crossedFor is how long this engine leaves a document to its rank after another engine's decision
// has crossed one about an end of this process.
const crossedFor = 5 * time.Second

func (d *Decider[D]) news() *news { return &d.heard }

func (d *Decider[D]) prompt(kind string) bool { return d.Prompt && kind == d.Planner.Kind() }

// hear takes the news. soon says that a look is to come soon: something was decided.
func (d *Decider[D]) hear(ctx context.Context) (soon bool) {
	decided, ends := d.heard.take()
	began, now := clock.Read(d.Store.Local()), d.Store.Local().Monotonic()
	for id, at := range d.crossed {
		if now-at >= crossedFor {
			delete(d.crossed, id)
		}
	}
	ends = slices.DeleteFunc(ends, func(l store.OutboxLife) bool {
		_, crossed := d.crossed[d.Planner.Of(l)]
		return crossed
	})
	if len(ends) == 0 {
		return decided
	}
	if _, err := d.Decide(ctx, began, nil, ends, d.Store.Clock.Now()); err != nil {
		return true // a look finds them, and says what is wrong
	}
	for _, l := range ends {
		if !d.wasTold(l) {
			d.crossed[d.Planner.Of(l)] = now
		}
	}
	return true
}
