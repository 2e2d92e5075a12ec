package plan

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Sweep looks for what nobody tells, as one engine of the fleet does every few minutes.
func (p *Plans) Sweep(ctx context.Context) error { return planner{p}.Sweep(ctx) }

// Finish does the rest of what plans decided, when the tasks of all but the unsent ones are sent.
func (p *Plans) Finish(ctx context.Context, plans []*repeat.Plan, unsent map[string]error) (held map[string]error, err error) {
	return planner{p}.Finish(ctx, plans, unsent)
}

// Skip lets time pass for p.
func (p *Plans) Skip(d time.Duration) { p.store.Clock.Skip(d) }

// Now is the time of the database, as p knows it.
func (p *Plans) Now() time.Time { return p.store.Clock.Now() }

// Engine is an engine that works only when a test tells it to, and remembers plans meanwhile.
func (p *Plans) Engine() *decision.Engine {
	return decision.NewEngine(p.id, stepplan.EngineType, p.decider)
}

// Decide writes a decision about a plan, as an engine does, and carries it out.
func (p *Plans) Decide(ctx context.Context, before, after *repeat.Plan) (applied bool, err error) {
	return p.decider.One(ctx, clock.Read(p.store.Local()), store.Decision[*repeat.Plan]{Before: before, After: after})
}
