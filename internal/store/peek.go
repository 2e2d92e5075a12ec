package store

import (
	"bytes"
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// Peek asks whether there is anything at all for an idle worker.
type Peek struct {
	Due      []string  // types of which something may be due by Until; at most [MaxTypes]
	Until    time.Time // the next time somebody asks
	WorkerID string
	Exclude  []string              // ids that this worker knows it is not given now
	Only     *lifecycle.Conditions // what the worker takes; nil = everything
	Labels   []string              // audiences to look at in the place of everybody's; nil = everybody's

	Priorities []int     // those to look at, ascending, and all between them; nil = all
	From       time.Time // tasks due before are not looked at; zero = no bound

	Executing []string // types of which something may be executing, by whomever; nil = not asked
}

// Peeked is what a [Peek] found. Where both were asked it may name one of two that are
// there.
type Peeked struct {
	Due       bool // look for it, or for when it is due
	Executing bool // leases are to be watched from now on
}

// Peek is the poll of an idle worker: one command that reads one document, and on most
// days none. Indexes: due and lapse, one for each branch of an $or; without a sort
// neither reads more than the first key of each range. A hint could name only one of
// them, so the server is asked once whether it does use both; where it does not, and
// where ids are left out, for which it might choose the index of _id, there are two
// commands instead, hinted.
//
// A bound (see head) leaves stragglers among the leases to a later poll.
func (s *Tasks) Peek(ctx context.Context, p Peek) (seen Peeked, err error) {
	due, _ := dueQuery(p.Due, append(audiences(p.Labels, p.WorkerID), lifecycle.AudienceMany), p.Priorities, p.From, p.Until)
	due = only(due, p.Only)
	h := s.head(IndexLapse, p.Executing...)
	l := h.begin(s.Clock.Now(), s.local.Monotonic())
	if len(p.Executing) > 0 {
		defer func() {
			if err == nil && seen == (Peeked{}) { // else there may be an earlier one than it names
				h.end(l, time.Time{})
			}
		}()
	}
	lapse := bson.D{d("type", in(p.Executing)), d("lapse_at", l.onward())}
	if len(p.Due) > 0 && len(p.Executing) > 0 && len(p.Exclude) == 0 {
		both := bson.D{d("$or", bson.A{due, lapse})}
		if s.indexed(ctx, both) {
			return s.peek(ctx, p, both, "")
		}
	}
	if len(p.Exclude) > 0 {
		due = append(due, d("_id", bson.D{d("$nin", p.Exclude)}))
	}
	for _, one := range []struct {
		asked  bool
		filter bson.D
		index  string
	}{{len(p.Due) > 0, due, IndexDue}, {len(p.Executing) > 0, lapse, IndexLapse}} {
		if !one.asked {
			continue
		}
		found, err := s.peek(ctx, p, one.filter, one.index)
		if err != nil {
			return Peeked{}, err
		}
		seen.Due, seen.Executing = seen.Due || found.Due, seen.Executing || found.Executing
	}
	return seen, nil
}

func (s *Tasks) peek(ctx context.Context, p Peek, filter bson.D, index string) (Peeked, error) {
	o := options.FindOne().SetProjection(bson.D{d("_id", 0), d("due_at", 1), d("lapse_at", 1)})
	if index != "" {
		o.SetHint(index)
	}
	type times struct {
		DueAt   time.Time `bson:"due_at"`
		LapseAt time.Time `bson:"lapse_at"`
	}
	doc, _, err := readOne[times](ctx, s.tasks, "checking for due tasks", filter, o)
	return Peeked{
		Due:       len(p.Due) > 0 && !doc.DueAt.IsZero() && !doc.DueAt.After(p.Until),
		Executing: len(p.Executing) > 0 && !doc.LapseAt.IsZero(),
	}, err
}

// indexed says whether this server answers a query of this form over the tasks by
// indexes alone; MongoDB does. It is asked once, and one that does not say counts as no.
func (s *Tasks) indexed(ctx context.Context, filter bson.D) bool {
	s.mu.Lock()
	known := s.peeks
	s.mu.Unlock()
	if known != nil {
		return *known
	}
	var answer struct {
		Planner struct {
			Winning bson.RawValue `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	err := s.db.RunCommand(ctx, bson.D{
		d("explain", bson.D{d("find", s.tasks.Name()), d("filter", filter), d("limit", 1)}), d("verbosity", "queryPlanner"),
	}).Decode(&answer)
	plan := answer.Planner.Winning.Value
	yes := err == nil && bytes.Contains(plan, []byte("IXSCAN")) && !bytes.Contains(plan, []byte("COLLSCAN"))
	if Unreachable(err) || ctx.Err() != nil {
		return false // it is asked again
	}
	s.mu.Lock()
	s.peeks = &yes
	s.mu.Unlock()
	return yes
}
