package periodic

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Config configures a Periodic. Only Database is required.
type Config struct {
	// Database holds the rules and tasks. It is never closed. Required.
	Database *mongo.Database
	// Prefix of the collections' names. Defaults to "".
	Prefix string
	// EngineID names this process among the engines. Rules and flows of one process share an
	// engine, which is listed under the id of the first. Defaults to "engine-" and random letters.
	EngineID string
	// SecretKey encrypts the keys that sign the calls and callbacks of rules: 32 bytes as hex
	// or base64. During a key rotation it lists several keys, separated by commas: the first
	// encrypts, all decrypt. Defaults to none: rules with such keys are then refused.
	SecretKey string
	// TracerProvider records spans of ticks, see docs/traces.md. Defaults to none.
	TracerProvider trace.TracerProvider
	// Clock is for tests. Defaults to the machine's clock.
	Clock model.Clock
	// Logger receives messages for operators. Defaults to the zero Logger, which is silent.
	Logger zerolog.Logger
}

// Periodic manages periodic rules, and is an engine while [Periodic.Run] runs. It is safe
// for concurrent use. What it changes is never part of a transaction.
type Periodic struct {
	store   *store.Store
	id      string
	types   *tasktypes.Cache
	secrets *secret.Box // nil = none
	tracer  tracing.Tracer
	log     zerolog.Logger
	decider *decision.Decider[*schedule.Rule]

	mu    sync.Mutex
	calls map[calendarKey]*calendar.Schedule // parsed rules
}

// New validates the Config and creates a Periodic. It does no I/O.
func New(cfg Config) (*Periodic, error) {
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
	p := &Periodic{store: st, types: tasktypes.New(st), id: id, secrets: box, tracer: tracing.New(cfg.TracerProvider), log: cfg.Logger.With().Str("engine_id", id).Logger(), calls: map[calendarKey]*calendar.Schedule{}}
	p.decider = decision.New(decision.Config[*schedule.Rule]{Store: p.store, Planner: planner{p}, Documents: p.store.Rules, Types: p.types, Log: p.log, Count: p.count, Begin: p.begin})
	return p, nil
}

// count counts what a decision made of ticks.
func (p *Periodic) count(w store.RuleWrite) {
	for what, n := range tickplan.Tally(w.Before, w.After) {
		p.store.Measure.Ticks.Of(what).Add(n)
	}
}

// Run is the engine: it decides ticks until ctx ends, then returns nil. Before it returns, it
// applies its decisions, for at most five seconds. Any number of processes may run an engine.
// Run waits for a server that is down. If waiting cannot help, for example with the schema of
// another release, it returns an error, and so it does if another Run of p has not returned yet.
func (p *Periodic) Run(ctx context.Context) error {
	for _, what := range tickplan.Tallied {
		p.store.Measure.Ticks.Of(what) // its rate needs a first value
	}
	return decision.Run(ctx, p.id, tickplan.EngineType, p.decider)
}

// calendarKey is what a parsed rule depends on.
type calendarKey struct {
	cron, zone, gap, fold string
	start                 int64
}

// calendarOf parses the rule's times, once.
func (p *Periodic) calendarOf(r *schedule.Rule) (*calendar.Schedule, error) {
	start := r.StartAt
	if start.IsZero() {
		start = r.CreatedAt
	}
	k := calendarKey{cron: r.Cron, zone: r.Timezone, start: start.Unix()}
	if r.DST != nil {
		k.gap, k.fold = r.DST.Gap, r.DST.Fold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[k]; c != nil {
		return c, nil
	}
	c, err := tickplan.TimesOf(r)
	if err != nil {
		return nil, err
	}
	if len(p.calls) > 200_000 { // of rules that are long gone
		clear(p.calls)
	}
	p.calls[k] = c
	return c, nil
}

// never stands for the times of a rule that this release cannot read: there are none.
var never = func() *calendar.Schedule {
	c, err := calendar.Parse(calendar.Spec{Cron: "@every 24h", Start: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		panic(err) // a constant
	}
	return c
}()

// withTimes makes a decision that needs the times of the rule.
func (p *Periodic) withTimes(rule func(*schedule.Rule, *calendar.Schedule, time.Time) (*schedule.Rule, error)) func(*schedule.Rule, *calendar.Schedule, time.Time) (*schedule.Rule, error) {
	return func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if cal == never {
			_, err := p.calendarOf(r)
			return nil, err
		}
		return rule(r, cal, now)
	}
}

// maxTries is how often a decision is made anew when somebody else decided in between.
const maxTries = 50

// change reads a rule, decides and writes that, again until nobody interferes, and carries
// out what was decided. rule returns nil when nothing is to change.
func (p *Periodic) change(ctx context.Context, doing, id string, rule func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error)) (*schedule.Rule, error) {
	return p.changeAny(ctx, doing, id, func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if !r.DeletedAt.IsZero() {
			return nil, fmt.Errorf("%w: it was deleted", store.ErrNoRule)
		}
		return rule(r, cal, now)
	})
}

// changeAny is [Periodic.change] of a rule that may have been deleted.
func (p *Periodic) changeAny(ctx context.Context, doing, id string, rule func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error)) (*schedule.Rule, error) {
	ctx = store.Outside(ctx) // what follows the decision is many commands, which no transaction takes back
	if err := p.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s rule %s: %w", doing, id, err)
	}
	for range maxTries {
		began := clock.Read(p.store.Local())
		before, err := p.store.Rules.Get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s a rule: %w", doing, err)
		}
		cal, err := p.calendarOf(before)
		if err != nil {
			cal = never // it can be mended, disabled and deleted all the same
		}
		after, err := rule(before, cal, p.store.Clock.Now())
		if err != nil {
			return nil, fmt.Errorf("%s rule %s: %w", doing, before.Name, err)
		}
		if after == nil {
			after = before
		}
		applied, err := p.decider.One(ctx, began, store.RuleWrite{Before: before, After: after})
		if err != nil {
			return nil, fmt.Errorf("%s rule %s: %w", doing, before.Name, err)
		}
		if applied {
			return after, nil
		}
	}
	return nil, fmt.Errorf("%s rule %s: %d attempts conflicted with other changes", doing, id, maxTries)
}
