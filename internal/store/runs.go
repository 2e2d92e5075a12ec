package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// manyRuns is from how many records of new runs on a command for these alone is cheaper than upserts.
const manyRuns = 16

// Put stores records, each unless the stored one is of a later decision. held are those that another
// client holds; the others are stored. Index: _id.
func (s *Runs) Put(ctx context.Context, runs []*schedule.Run) (held []*schedule.Run, err error) {
	const doing = "storing run"
	var begun, rest []*schedule.Run
	for _, r := range runs {
		if r.Status == schedule.RunScheduled || r.Status == schedule.RunSkipped {
			begun = append(begun, r)
		} else {
			rest = append(rest, r)
		}
	}
	if len(begun) < manyRuns {
		rest = runs
	} else {
		existed, waits, err := insertEach(ctx, s.core, s.runs, doing, begun)
		switch {
		case Outage(err):
			return nil, err
		case err != nil: // one is refused: the others are stored one by one
			rest = runs
		default:
			for _, i := range existed { // a queued run, or one of a decision that is carried out again
				rest = append(rest, begun[i])
			}
			for _, i := range waits {
				held = append(held, begun[i])
			}
		}
	}
	more, err := putRecords(ctx, s.core, s.runs, doing, rest, func(r *schedule.Run) (string, int64) { return r.ID, r.Rev })
	return append(held, more...), err
}

// putRecords stores records, each unless the stored one is of a later decision: of a higher rev. A
// field to keep is not taken away from a stored record that has it. held are the records that another
// client holds; the others are stored. doing says what is done to one record.
func putRecords[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string, records []*T, of func(*T) (id string, rev int64), keep ...string) (held []*T, err error) {
	// The upsert makes a record that is not there. Where a later decision's is, its filter
	// misses and the insert collides; but it collides, too, with an earlier decision's that
	// was stored at the same moment, which must give way. So those are tried once more: now
	// that there is a record, the filter alone decides.
	for tries := 0; tries < 2 && len(records) > 0; tries++ {
		changes := make([]change, len(records))
		for i, r := range records {
			id, rev := of(r)
			update, err := replaced(r, "_id")
			if err != nil {
				return nil, fmt.Errorf("encoding the record %s: %w", id, err)
			}
			changes[i] = change{id: id, guard: bson.D{d("rev", bson.D{d("$lte", rev)})}, update: without(update, keep), upsert: true, undone: isNot("rev", rev)}
		}
		statements, err := statementsOf(changes)
		if err != nil {
			return nil, err
		}
		x, err := s.sendTwice(ctx, coll, doing, statements)
		if err != nil {
			return nil, err
		}
		var collided []*T
		for i, r := range records {
			switch why := x.refused[changes[i].id]; {
			case IsDuplicate(why):
				collided = append(collided, r)
			case why != nil:
				return nil, why
			case !x.done(changes[i].id):
				held = append(held, r)
			}
		}
		records = collided
	}
	return held, nil
}

// RunFilter selects records. Zero fields select everything.
type RunFilter struct {
	RuleID   string
	Tenant   string // model.NoTenant = those of rules without one
	Statuses []schedule.RunStatus
	From, To time.Time // nominal in [From, To)
}

// storedRuns are the statuses that records have.
var storedRuns = []schedule.RunStatus{
	schedule.RunScheduled, schedule.RunQueued, schedule.RunSuccess, schedule.RunFailed, schedule.RunTimeout, schedule.RunFailedTimeout, schedule.RunCanceled, schedule.RunSkipped,
}

// indexed is the part of the query that an index answers, and that index.
func (f *RunFilter) indexed() (q bson.D, index string) {
	if f.RuleID != "" {
		return f.nominal(bson.D{d("rule_id", f.RuleID)}), indexRule
	}
	// The statuses are points, so that the server merges the ranges behind them by time.
	statuses := f.Statuses
	if len(statuses) == 0 {
		statuses = storedRuns
	}
	return f.nominal(bson.D{d("status", in(statuses))}), indexStatus
}

func (f *RunFilter) nominal(q bson.D) bson.D {
	if nominal := timeRange(f.From, f.To); nominal != nil {
		q = append(q, d("nominal", nominal))
	}
	return q
}

// List reads records in the order of their nominal times. unread are documents that this release cannot
// read; the span's limit counts them, too. Indexes: rule; status where no rule is named.
func (s *Runs) List(ctx context.Context, f RunFilter, span Span) (runs []*schedule.Run, unread []Unreadable, err error) {
	q, index := f.indexed()
	q = byTenant(q, f.Tenant)
	if f.RuleID != "" && len(f.Statuses) > 0 {
		q = append(q, d("status", in(f.Statuses)))
	}
	err = decodeEach(ctx, s.runs, "reading runs", span.where("nominal", q), span.options("nominal", index),
		func(r *schedule.Run) { runs = append(runs, r) }, func(doc bson.Raw, err error) { unread = append(unread, unreadable(doc, err)) })
	return runs, unread, err
}

// Any reports whether the rule has records. Index: rule.
func (s *Runs) Any(ctx context.Context, ruleID string) (bool, error) {
	return finds(ctx, s.runs, "looking for a run", bson.D{d("rule_id", ruleID)}, options.FindOne().SetHint(indexRule))
}

// Bound is where a page of [Runs.List] is to end, so that the server looks at [PageExamines] records at most.
// Indexes: rule; status where no rule is named; and no document.
func (s *Runs) Bound(ctx context.Context, f RunFilter, span Span) (time.Time, error) {
	q, index := f.indexed()
	return span.bounded(ctx, s.runs, "reading runs", "nominal", index, q)
}

// Have tells which of the records exist. Index: _id.
func (s *Runs) Have(ctx context.Context, ids []string) (map[string]bool, error) {
	found, err := readIDs(ctx, s.runs, "looking for runs", bson.D{d("_id", in(ids))})
	have := make(map[string]bool, len(found))
	for _, id := range found {
		have[id] = true
	}
	return have, err
}

// Get reads one record; nil when there is none. Index: _id.
func (s *Runs) Get(ctx context.Context, id string) (*schedule.Run, error) {
	r, there, err := readOne[schedule.Run](ctx, s.runs, "reading the run "+id, bson.D{d("_id", id)})
	if !there {
		return nil, err
	}
	return &r, nil
}

// without leaves out of an update that it takes fields away.
func without(update bson.D, keep []string) bson.D {
	for i := range update {
		if fields, is := update[i].Value.(bson.D); is && update[i].Key == "$unset" {
			update[i].Value = slices.DeleteFunc(fields, func(e bson.E) bool { return slices.Contains(keep, e.Key) })
		}
	}
	return slices.DeleteFunc(update, func(e bson.E) bool {
		fields, is := e.Value.(bson.D)
		return is && len(fields) == 0
	})
}
