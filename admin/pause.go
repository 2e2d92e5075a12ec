package admin

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
)

// Pause stops the claiming of tasks of these types everywhere, within two seconds; what
// runs goes on, and what is sent waits. Pausing twice is no error.
func (a *Admin) Pause(ctx context.Context, types ...string) error {
	return a.pause(ctx, "pausing", types, func() error { return a.room.Store.Control.Pause(ctx, false, types) })
}

// Resume undoes [Admin.Pause] for these types and wakes their workers. It does not
// undo [Admin.PauseAll].
func (a *Admin) Resume(ctx context.Context, types ...string) error {
	return a.pause(ctx, "resuming", types, func() error { return a.room.Store.Control.Resume(ctx, false, types) })
}

func (a *Admin) pause(ctx context.Context, doing string, types []string, do func() error) error {
	if len(types) == 0 {
		return fmt.Errorf("%s: %w", doing, input.Invalid("types", "are empty; to affect all types, use PauseAll or ResumeAll"))
	}
	for _, typ := range types {
		if err := input.Name("type", typ); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	if err := a.room.Prepare(ctx); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return do()
}

// PauseAll stops the claiming of all tasks, as [Admin.Pause] does.
func (a *Admin) PauseAll(ctx context.Context) error {
	if err := a.room.Prepare(ctx); err != nil {
		return fmt.Errorf("pausing: %w", err)
	}
	return a.room.Store.Control.Pause(ctx, true, nil)
}

// ResumeAll undoes [Admin.PauseAll]; types that were paused by name stay paused.
func (a *Admin) ResumeAll(ctx context.Context) error {
	if err := a.room.Prepare(ctx); err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	return a.room.Store.Control.Resume(ctx, true, nil)
}

// Paused says which types are paused by name, and whether everything is.
func (a *Admin) Paused(ctx context.Context) (types []string, all bool, err error) {
	c, err := a.room.Store.Control.Read(ctx)
	return c.PausedTypes, c.PausedAll, err
}
