package upkeep

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

// Restored prepares the tasks of a database that was restored from a backup, by the rule
// [lifecycle.Restored]. Nothing else may run meanwhile. It may be cut off and repeated.
type Restored struct {
	Store *store.Store
	Dry   bool // only count
	// Check, if it is not nil, is called before each page of tasks. An error ends the run.
	Check func(ctx context.Context) error
}

// RestoredSum counts what was done, or in a dry run what would be.
type RestoredSum struct {
	Tasks    int `json:"tasks"`    // that have not ended: each has a greater token
	Released int `json:"released"` // executions that were open
	Parked   int `json:"parked"`   // executions that go on waiting for their completion
	// Unreadable are the ids of tasks that cannot be decoded, and Refused of those that the server does not change,
	// because they would become too large, say. They were left as they are.
	Unreadable []string `json:"unreadable,omitempty"`
	Refused    []string `json:"refused,omitempty"`
}

const (
	perRestored      = 500
	restoredExamined = 20_000
	restoredTries    = 20
)

// All goes over all tasks, by id. Those that cannot be decoded or changed delay no others.
func (r Restored) All(ctx context.Context) (sum RestoredSum, err error) {
	if err := r.Store.FreshClock(ctx); err != nil {
		return sum, err
	}
	types := tasktypes.New(r.Store)
	if err := types.Fresh(ctx, 0); err != nil {
		return sum, err
	}
	f := store.Filter{Statuses: []model.Status{model.StatusWait, model.StatusNew, model.StatusExecuting, model.StatusError}}
	for {
		if r.Check != nil {
			if err := r.Check(ctx); err != nil {
				return sum, err
			}
		}
		page, err := r.Store.History.FindLives(ctx, f, store.InTasks, store.Extent{Limit: perRestored, Examine: restoredExamined})
		if err != nil {
			return sum, err
		}
		var tasks []*model.Task
		for _, raw := range page.Docs {
			t, err := store.Decode(raw)
			if err != nil {
				id, _ := raw.Lookup("_id").StringValueOK()
				sum.Unreadable = append(sum.Unreadable, id)
				continue
			}
			tasks = append(tasks, t)
		}
		if err := r.some(ctx, types, tasks, &sum); err != nil || page.Next == nil {
			return sum, err
		}
		f.AfterID = page.Next.ID
	}
}

// some prepares these. What is locked for a moment, or was changed all the same, is read again.
func (r Restored) some(ctx context.Context, types *tasktypes.Cache, tasks []*model.Task, sum *RestoredSum) error {
	for range restoredTries {
		var writes []store.Write
		now := r.Store.Clock.Now()
		for _, t := range tasks {
			after := lifecycle.Restored(t, lifecycle.ResolveOptions(t.Options, types.Options(t.Type)), now)
			if after != t {
				writes = append(writes, store.Write{Before: t, After: after})
			}
		}
		written := make([]store.Written, len(writes))
		if !r.Dry {
			var err error
			if written, err = r.Store.Tasks.Writes(ctx, writes, store.Patience); err != nil {
				return err
			}
		}
		var again []string
		for i, w := range written {
			switch {
			case w.Refused != nil:
				sum.Refused = append(sum.Refused, writes[i].After.ID)
			case w.Applied || r.Dry:
				sum.add(writes[i])
			default:
				again = append(again, writes[i].After.ID)
			}
		}
		if len(again) == 0 {
			return nil
		}
		found, err := r.Store.Tasks.ByIDs(ctx, again)
		if err != nil {
			return err
		}
		tasks = tasks[:0]
		for id, t := range found {
			if t == nil {
				sum.Unreadable = append(sum.Unreadable, id)
				continue
			}
			tasks = append(tasks, t)
		}
	}
	return fmt.Errorf("preparing task %s: %w", tasks[0].ID, store.ErrHeld)
}

func (s *RestoredSum) add(w store.Write) {
	before, after := lifecycle.OpenExecutions(w.Before), lifecycle.OpenExecutions(w.After)
	s.Tasks++
	s.Parked += after
	s.Released += before - after
}
