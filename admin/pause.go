package admin

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Pause makes all workers stop claiming tasks of these types within two seconds. Running tasks
// continue, and new tasks wait. Pausing twice is not an error.
func (a *Admin) Pause(ctx context.Context, types ...string) error {
	return a.pause(ctx, "pausing", types, func(ctx context.Context) error { return a.room.Store.Control.Pause(ctx, false, types, "", "") })
}

// Resume reverts [Admin.Pause] for these types and wakes their workers. It does not revert
// [Admin.PauseAll].
func (a *Admin) Resume(ctx context.Context, types ...string) error {
	return a.pause(ctx, "resuming", types, func(ctx context.Context) error { return a.room.Store.Control.Resume(ctx, false, types) })
}

func (a *Admin) pause(ctx context.Context, doing string, types []string, do func(context.Context) error) error {
	if len(types) == 0 {
		return fmt.Errorf("%s: %w", doing, input.Invalid("types", "are empty; to affect all types, use PauseAll or ResumeAll"))
	}
	for _, typ := range types {
		if err := input.Name("type", typ); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	return a.set(ctx, doing, do)
}

// set changes a setting outside any transaction. Other processes read settings before the transaction could commit, and
// signals to workers cannot be taken back.
func (a *Admin) set(ctx context.Context, doing string, do func(context.Context) error) error {
	ctx = store.Outside(ctx)
	if err := a.room.Prepare(ctx); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return do(ctx)
}

// PauseAll is [Admin.Pause] for all types.
func (a *Admin) PauseAll(ctx context.Context) error {
	return a.set(ctx, "pausing", func(ctx context.Context) error { return a.room.Store.Control.Pause(ctx, true, nil, "", "") })
}

// ResumeAll reverts [Admin.PauseAll]. Types that were paused by name stay paused.
func (a *Admin) ResumeAll(ctx context.Context) error {
	return a.set(ctx, "resuming", func(ctx context.Context) error { return a.room.Store.Control.Resume(ctx, true, nil) })
}

// Paused returns the types that are paused by name, and whether all types are paused.
func (a *Admin) Paused(ctx context.Context) (types []string, all bool, err error) {
	c, err := a.room.Store.Control.Read(ctx)
	return c.PausedTypes, c.PausedAll, err
}
