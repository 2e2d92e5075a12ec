package plan

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Config of Plans. Only Database is needed.
type Config struct {
	// Database holds the plans and tasks. It is never closed. Required.
	Database *mongo.Database
	// Prefix of the collections' names. Defaults to "".
	Prefix string
	// EngineID names this process among the engines. Engines of one process that share their
	// queries use the name of the first one. Defaults to "engine-" and random letters.
	EngineID string
	// SecretKey encrypts the keys that sign the callbacks of plans: 32 bytes as hex or base64, or several
	// separated by commas. The first encrypts, all decrypt. Defaults to none: plans with such keys are
	// refused.
	SecretKey string
	// TracerProvider records spans of publications and steps, see docs/traces.md. Defaults to none.
	TracerProvider trace.TracerProvider
	// Clock is for tests. Defaults to the machine's.
	Clock model.Clock
	// Logger receives messages for operators. Defaults to the zero Logger, which is silent.
	Logger zerolog.Logger
}

// Plans publishes and manages plans. While [Plans.Run] runs, it is also an engine. It is safe for
// concurrent use. Changes other than [Plans.Publish] and [Plans.PublishMany] are never part of a transaction.
type Plans struct {
	store   *store.Store
	id      string
	types   *tasktypes.Cache
	secrets *secret.Box // nil = none
	tracer  tracing.Tracer
	log     zerolog.Logger
	decider *decision.Decider[*repeat.Plan]
}

// New makes Plans and checks the configuration. It does no I/O.
func New(cfg Config) (*Plans, error) {
	st, err := store.Open(store.Config{Database: cfg.Database, Prefix: cfg.Prefix, Clock: cfg.Clock, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	id, err := input.EngineID(cfg.EngineID)
	if err != nil {
		return nil, err
	}
	box, err := secret.Parse("secret_key", cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	p := &Plans{store: st, id: id, types: tasktypes.New(st), secrets: box, tracer: tracing.New(cfg.TracerProvider), log: cfg.Logger.With().Str("engine_id", id).Logger()}
	p.decider = decision.New(decision.Config[*repeat.Plan]{Store: p.store, Planner: planner{p}, Documents: p.store.Plans, Types: p.types, Log: p.log, Prompt: true, Size: sizeOf, Over: isOver, There: planner{p}.there, Begin: p.begin})
	return p, nil
}

// sizeOf is about how many bytes of memory a plan takes.
func sizeOf(plan *repeat.Plan) int { return 4<<10 + len(plan.Messages.Value) }

// isOver says that nothing more is decided about a plan.
func isOver(plan *repeat.Plan) bool { return stepplan.Over(plan.Status) }

// Run is the engine: it plans the next step when one has ended. It returns nil when ctx ends. Any
// number of processes may run an engine. Run waits while the server is down. It returns an error only
// if waiting cannot help, for example if the schema is that of another release, or if another Run of p
// has not returned yet.
func (p *Plans) Run(ctx context.Context) error {
	return decision.Run(ctx, p.id, stepplan.EngineType, p.decider)
}

// Validate returns every mistake in a definition, joined, or nil. It does no I/O.
func Validate(s repeat.Spec) error { return stepplan.Validate(&s) }

// Get reads a plan, also one that is over. The error is [model.ErrNotFound] if there is none.
// id is tenant/plan_id, with - for no tenant, such as -/nightly-report.
func (p *Plans) Get(ctx context.Context, id string) (*repeat.Plan, error) {
	return p.store.Plans.Get(ctx, id)
}

// Filter selects plans. A zero field selects all.
type Filter struct {
	Tenant, Station string // of Tenant model.NoTenant = those without one
	Status          repeat.Status
	Over            bool // those in the history in the place of the others
}

// List returns at most limit plans (1 to 1,000), the last changed first, without their Messages. The
// list begins behind the plan after (nil = at the beginning): List reads only its ID and UpdatedAt. If this release
// cannot read some plans, List returns the others and a [*model.UnreadableError] with their ids. No step
// of those starts.
//
// The database reads plans of the status in the order of their changes until it has found limit that the filter
// selects. For a tenant or a station with few plans among many that may be all of them: bound the time by ctx.
func (p *Plans) List(ctx context.Context, f Filter, after *repeat.Plan, limit int) ([]*repeat.Plan, error) {
	if limit < 1 || limit > 1000 {
		return nil, input.Invalid("limit", "is %d; want 1 to 1000", limit)
	}
	span := store.Span{Limit: limit}
	if after != nil {
		span.At, span.ID = after.UpdatedAt, after.ID
	}
	docs, unread, err := p.store.Plans.List(ctx, store.PlanFilter(f), span)
	if err != nil {
		return nil, err
	}
	return docs, store.UnreadError("plan", unread)
}

// Results returns at most limit results (1 to 1,000) of a plan, the oldest first. It returns fewer if they
// have more than about 8 MiB together, but at least one unless the list is at its end. The list begins
// behind the result after (nil = at the beginning): Results reads only its ID and At.
// id is tenant/plan_id, with - for no tenant, such as -/nightly-report.
func (p *Plans) Results(ctx context.Context, id string, after *repeat.Result, limit int) ([]repeat.Result, error) {
	if limit < 1 || limit > 1000 {
		return nil, input.Invalid("limit", "is %d; want 1 to 1000", limit)
	}
	page, _, err := p.store.Results.List(ctx, id, store.ResultPage{After: after, Limit: limit})
	var results []repeat.Result
	for _, r := range page {
		results = append(results, *r)
	}
	return results, err
}

// Drain plans all steps that can be planned now, and returns. It is for tests, which pass it to
// mstest.With or to consumer.Consumer.Drain:
//
//	mstest.Drain(t, c, mstest.SkipTime(), mstest.With(plans.Drain))
//
// now is the caller's notion of the database's time. Drain advances its own notion to now, never
// backwards. If worked is true, tasks may have become due, and next is the time to look for them.
// Otherwise next is zero: the tasks of waiting steps have their times. Drain also does the work of other
// engines that are alive. It is refused while [Plans.Run] runs.
func (p *Plans) Drain(ctx context.Context, now time.Time) (next time.Time, worked bool, err error) {
	if next, worked, err = p.decider.Drain(ctx, "plans", now, nil); err != nil || !worked {
		next = time.Time{}
	}
	return next, worked, err
}
