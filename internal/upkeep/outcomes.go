package upkeep

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Outcomes carries out what processes that died left over.
type Outcomes struct{ Runner *outcome.Runner }

// Name implements [Job].
func (Outcomes) Name() string { return "outcomes" }

// Wanted implements [Job].
func (Outcomes) Wanted(c store.Chores) bool { return c.Outbox }

// Run implements [Job].
func (j Outcomes) Run(ctx context.Context) error {
	if _, err := j.Runner.Sweep(ctx, outcome.Overdue); err != nil {
		return err
	}
	return j.Runner.Repair(ctx)
}
