package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Put stores records, each unless the stored one is of a later decision. Index: _id.
func (s *Runs) Put(ctx context.Context, runs []*schedule.Run) error {
	if len(runs) == 0 {
		return nil
	}
	put := func(runs []*schedule.Run, upsert bool) error {
		models := make([]mongo.WriteModel, len(runs))
		for i, r := range runs {
			update, err := runUpdate(r)
			if err != nil {
				return fmt.Errorf("encoding the record of the run %s: %w", r.ID, err)
			}
			models[i] = mongo.NewUpdateOneModel().SetUpsert(upsert).SetUpdate(update).
				SetFilter(bson.D{d("_id", r.ID), d("rev", bson.D{d("$lte", r.Rev)})})
		}
		_, err := s.runs.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		return err
	}
	// The upsert makes a record that is not there. Where a later decision's is, its filter
	// misses and the insert collides; but it collides, too, with an earlier decision's that
	// was stored at the same moment, which must give way. So those are tried once more: now
	// that there is a record, the filter alone decides.
	err := put(runs, true)
	if collided, only := duplicates(err); only {
		again := make([]*schedule.Run, len(collided))
		for i, at := range collided {
			again[i] = runs[at]
		}
		err = put(again, false)
	}
	return explain(err, "storing records of runs")
}

// runUpdate sets all that a record says and takes away what it says no more; what another
// release put there stays.
func runUpdate(r *schedule.Run) (bson.D, error) {
	raw, err := bson.Marshal(r)
	if err != nil {
		return nil, err
	}
	elems, err := bson.Raw(raw).Elements()
	if err != nil {
		return nil, err
	}
	set, unset := make(bson.D, 0, len(elems)), bson.D{}
	for _, e := range elems {
		if e.Key() != "_id" {
			set = append(set, d(e.Key(), e.Value()))
		}
	}
	for _, key := range []string{"last", "count", "reason", "error_info", "attempt", "manual", "task_id", "late_ms", "started_at", "executed_at", "ended_at", "call"} {
		if bson.Raw(raw).Lookup(key).Type == 0 {
			unset = append(unset, d(key, ""))
		}
	}
	return bson.D{d("$set", set), d("$unset", unset)}, nil
}

// duplicates are the indices of writes that collided; only says that nothing else went wrong.
func duplicates(err error) (collided []int, only bool) {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return nil, false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != 11000 {
			return nil, false
		}
		collided = append(collided, e.Index)
	}
	return collided, len(collided) > 0
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

// List reads records, the newest nominal time first, after the one with that nominal time and
// id. Indexes: rule; status where no rule is named.
func (s *Runs) List(ctx context.Context, f RunFilter, after *schedule.Run, limit int) ([]*schedule.Run, error) {
	q, index := bson.D{d("rule_id", f.RuleID)}, IndexRule
	if f.RuleID == "" {
		// The statuses are points, so that the server merges the ranges behind them by time.
		q, index = bson.D{}, IndexStatus
		if len(f.Statuses) == 0 {
			f.Statuses = storedRuns
		}
	}
	switch f.Tenant {
	case "":
	case model.NoTenant:
		q = append(q, d("tenant", nil))
	default:
		q = append(q, d("tenant", f.Tenant))
	}
	nominal := bson.D{}
	if !f.From.IsZero() {
		nominal = append(nominal, d("$gte", f.From))
	}
	if !f.To.IsZero() {
		nominal = append(nominal, d("$lt", f.To))
	}
	if len(f.Statuses) > 0 {
		q = append(q, d("status", in(f.Statuses)))
	}
	if after != nil {
		nominal = append(nominal, d("$lte", after.Nominal)) // where the index is entered
		q = append(q, d("$or", bson.A{
			bson.D{d("nominal", bson.D{d("$lt", after.Nominal)})},
			bson.D{d("nominal", after.Nominal), d("_id", bson.D{d("$lt", after.ID)})},
		}))
	}
	if len(nominal) > 0 {
		q = append(q, d("nominal", nominal))
	}
	cur, err := s.runs.Find(ctx, q, options.Find().SetSort(bson.D{d("nominal", -1), d("_id", -1)}).SetHint(index).SetLimit(int64(limit)))
	if err != nil {
		return nil, explain(err, "reading runs")
	}
	var out []*schedule.Run
	return out, explain(cur.All(ctx, &out), "reading runs")
}

// Have tells which of the records exist. Index: _id.
func (s *Runs) Have(ctx context.Context, ids []string) (map[string]bool, error) {
	cur, err := s.runs.Find(ctx, bson.D{d("_id", in(ids))}, options.Find().SetProjection(bson.D{d("_id", 1)}))
	if err != nil {
		return nil, explain(err, "looking for runs")
	}
	var found []struct {
		ID string `bson:"_id"`
	}
	err = cur.All(ctx, &found)
	have := make(map[string]bool, len(found))
	for _, f := range found {
		have[f.ID] = true
	}
	return have, explain(err, "looking for runs")
}

// Get reads one record; nil when there is none. Index: _id.
func (s *Runs) Get(ctx context.Context, id string) (*schedule.Run, error) {
	var r schedule.Run
	err := s.runs.FindOne(ctx, bson.D{d("_id", id)}).Decode(&r)
	if isNone(err) {
		return nil, nil
	}
	return &r, explain(err, "reading the run "+id)
}
