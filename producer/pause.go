package producer

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
)

// Pause stops the claiming of tasks of these types everywhere, within two seconds; what
// runs goes on, and what is sent waits. Pausing twice is no error.
func (p *Producer) Pause(ctx context.Context, types ...string) error {
	return p.pause(ctx, "pausing", types, func() error { return p.room.Store.Control.Pause(ctx, false, types) })
}

// Resume undoes [Producer.Pause] for these types and wakes their workers. It does not
// undo [Producer.PauseAll].
func (p *Producer) Resume(ctx context.Context, types ...string) error {
	return p.pause(ctx, "resuming", types, func() error { return p.room.Store.Control.Resume(ctx, false, types) })
}

func (p *Producer) pause(ctx context.Context, doing string, types []string, do func() error) error {
	if len(types) == 0 {
		return fmt.Errorf("%s: %w", doing, input.Invalid("types", "are empty; PauseAll and ResumeAll are for all of them"))
	}
	for _, typ := range types {
		if err := input.Name("type", typ); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	if err := p.room.Prepare(ctx); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return do()
}

// PauseAll stops the claiming of all tasks, as [Producer.Pause] does.
func (p *Producer) PauseAll(ctx context.Context) error {
	if err := p.room.Prepare(ctx); err != nil {
		return fmt.Errorf("pausing: %w", err)
	}
	return p.room.Store.Control.Pause(ctx, true, nil)
}

// ResumeAll undoes [Producer.PauseAll]; types that were paused by name stay paused.
func (p *Producer) ResumeAll(ctx context.Context) error {
	if err := p.room.Prepare(ctx); err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	return p.room.Store.Control.Resume(ctx, true, nil)
}

// Paused says which types are paused by name, and whether everything is.
func (p *Producer) Paused(ctx context.Context) (types []string, all bool, err error) {
	c, err := p.room.Store.Control.Read(ctx)
	return c.PausedTypes, c.PausedAll, err
}
