package upkeep

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Limits frees permits whose executions died, and gives keys to the next that waits.
type Limits struct {
	Gate *limits.Gate
	Used func() bool // whether anybody has ever used a limit: else it costs nothing
}

// Name implements [Job].
func (Limits) Name() string { return "limits" }

// Wanted implements [Job].
func (j Limits) Wanted(store.Chores) bool { return j.Used() || j.Gate.Lacks() }

// Run implements [Job].
func (j Limits) Run(ctx context.Context) error {
	more, err := j.Gate.Sweep(ctx)
	if err == nil && more {
		return ErrMore
	}
	return err
}
