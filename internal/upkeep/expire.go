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

const perExpiry = 500

// Name implements [Job].
func (Expiry) Name() string { return "expiry" }

// Wanted implements [Job].
func (Expiry) Wanted(c store.Chores) bool { return c.Expired }

// Run implements [Job].
func (j Expiry) Run(ctx context.Context) error {
	for {
		found, err := j.Store.Tasks.Expired(ctx, perExpiry)
		if err != nil || len(found) == 0 {
			return err
		}
		now := j.Store.Clock.Now()
		var writes []store.Write
		for _, t := range found {
			eff := lifecycle.ResolveOptions(t.Options, j.Types.Options(t.Type))
			if after := lifecycle.Repair(t, eff, now); after != nil {
				writes = append(writes, store.Write{Before: t, After: after})
			}
		}
		if len(writes) == 0 {
			return nil // of a later release
		}
		written, err := j.Store.Tasks.Writes(ctx, writes, store.Patience)
		if err != nil {
			return err // some may be done: the next look finds the rest
		}
		none, refused := true, error(nil)
		for i, w := range written {
			none = none && (w.Refused != nil || w.Held)
			if w.Refused != nil {
				refused = w.Refused
			}
			if w.Applied && writes[i].After.Status.Ended() {
				j.Ended(writes[i].After)
			}
		}
		switch { // the next look would find the same
		case none && refused != nil:
			return fmt.Errorf("ending expired tasks: %w", refused)
		case none: // what somebody holds waits for a later round
			return nil
		}
	}
}
