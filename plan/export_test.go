package plan

import (
	"context"
	"time"
)

// Sweep looks for what nobody tells, as one engine of the fleet does every few minutes.
func (p *Plans) Sweep(ctx context.Context) error { return planner{p}.Sweep(ctx) }

// Skip lets time pass for p.
func (p *Plans) Skip(d time.Duration) { p.store.Clock.Skip(d) }
