package upkeep

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

// Expiry ends tasks that nobody started by their time, also where no worker of their type
// lives. A worker that finds such a task before does the same.
type Expiry struct {
	Store *store.Store
	Types *tasktypes.Cache
	Ended func(*model.Task) // hears of each that this process ended
}

const (
	perExpiry = 500
	// mostLeft bounds how many tasks one run finds that it cannot end now, for example because a client locks them.
	mostLeft = 2500
)

// Name implements [Job].
func (Expiry) Name() string { return "expiry" }

// Wanted implements [Job].
func (Expiry) Wanted(c store.Chores) bool { return c.Expired }

// Run implements [Job]. It leaves tasks that an open transaction holds to a later run. It returns
// [ErrMore] if some have changed meanwhile and must be read again.
func (j Expiry) Run(ctx context.Context) error {
	var from store.ExpiredFrom
	var refused error
	crossed := false
	for left := 0; left < mostLeft; {
		found, err := j.Store.Tasks.Expired(ctx, &from, perExpiry)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			break
		}
		if err := j.Types.Fresh(ctx, tasktypes.MaxAge); err != nil { // an idle worker's copy is as old as its last poll
			return err
		}
		writes := j.writes(found)
		written, err := j.Store.Tasks.Writes(ctx, writes, store.Patience)
		if err != nil {
			return err // some may be done: the next look finds the rest
		}
		done := map[string]bool{}
		for i, w := range written {
			switch after := writes[i].After; {
			case w.Applied:
				if done[after.ID] = true; after.Status.Ended() {
					j.Ended(after)
				}
			case w.Refused != nil:
				refused = w.Refused
			default:
				crossed = crossed || !w.Held
			}
		}
		for _, t := range found {
			if !done[t.ID] {
				from.Leave(t)
				left++
			}
		}
	}
	switch {
	case refused != nil:
		return fmt.Errorf("ending expired tasks: %w", refused)
	case crossed:
		return ErrMore
	default:
		return nil
	}
}

// writes are the ends of the tasks, but for those that are known to be held and those of a later release.
func (j Expiry) writes(tasks []*model.Task) (writes []store.Write) {
	now := j.Store.Clock.Now()
	for _, t := range tasks {
		if j.Store.ProbeLater(t.ID) {
			continue
		}
		eff := lifecycle.ResolveOptions(t.Options, j.Types.Options(t.Type))
		if after := lifecycle.Repair(t, eff, now); after != nil {
			writes = append(writes, store.Write{Before: t, After: after})
		}
	}
	return writes
}
