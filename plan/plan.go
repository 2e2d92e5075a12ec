package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Errors that callers branch on (errors.Is).
var (
	ErrNotFound = store.ErrNoPlan     // no such plan
	ErrRefused  = stepplan.ErrRefused // the status of the plan forbids it
)

// Config of Plans. Only Database is needed.
type Config struct {
	// Database holds the plans and tasks. It is never closed. Required.
	Database *mongo.Database
	// Prefix of the collections' names. Defaults to "".
	Prefix string
	// EngineID names this process among the engines. Engines of one process that share their
	// queries use the name of the first one. Defaults to a generated id.
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
// concurrent use.
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
	id := cfg.EngineID
	if id == "" {
		id = "plan-" + input.Random()[:12]
	} else if err := input.WorkerID("engine_id", id); err != nil {
		return nil, err
	}
	box, err := secret.Parse("secret_key", cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	p := &Plans{store: st, id: id, types: tasktypes.New(st), secrets: box, tracer: tracing.New(cfg.TracerProvider), log: cfg.Logger.With().Str("engine_id", id).Logger()}
	p.decider = p.newDecider()
	return p, nil
}

func (p *Plans) newDecider() *decision.Decider[*repeat.Plan] {
	return decision.New(decision.Config[*repeat.Plan]{Store: p.store, Planner: planner{p}, Documents: p.store.Plans, Types: p.types, Log: p.log, Prompt: true, Size: sizeOf, There: planner{p}.there, Begin: p.begin})
}

// sizeOf is about how many bytes of memory a plan takes; 0 = nothing more is decided about it.
func sizeOf(plan *repeat.Plan) int {
	if plan.Status.Over() {
		return 0
	}
	return 4<<10 + len(plan.Messages.Value)
}

// Run is the engine: it plans the next step when one has ended. It returns nil when ctx ends. Any
// number of processes may run an engine. Run waits while the server is down. It returns an error only
// if waiting cannot help, for example if the schema is that of another release.
func (p *Plans) Run(ctx context.Context) error {
	return decision.Run(ctx, p.id, stepplan.EngineType, p.decider)
}

// Validate returns every mistake in a definition, joined, or nil. It does no I/O.
func Validate(s repeat.Spec) error { return stepplan.Validate(&s) }

// Publish stores a plan and the task of its first step. If a plan with the id exists, also one that is
// over, Publish returns that plan, whose Created is false, and changes nothing. A plan whose last time
// has passed is stored as FINISH. With a session in ctx the plan is part of the caller's transaction, and
// the task of its first step is stored a few seconds after the commit.
func (p *Plans) Publish(ctx context.Context, s repeat.Spec) (*repeat.Plan, error) {
	plans, err := p.publish(ctx, []repeat.Spec{s}, func(_ int, err error) error { return err })
	if err != nil {
		return nil, fmt.Errorf("publishing a plan: %w", err)
	}
	return plans[0], nil
}

// maxPublish is how many plans one call publishes.
const maxPublish = 1000

// PublishMany is [Plans.Publish] for 1 to 1,000 plans. If one of them is invalid, none is stored, and
// the error names every mistake. After another error some may be stored: call it again with the same
// ids.
func (p *Plans) PublishMany(ctx context.Context, specs []repeat.Spec) ([]*repeat.Plan, error) {
	if n := len(specs); n < 1 || n > maxPublish {
		return nil, input.Invalid("plans", "are %d; want 1 to %d", n, maxPublish)
	}
	plans, err := p.publish(ctx, specs, func(i int, err error) error { return input.Under(fmt.Sprintf("plans[%d]", i), err) })
	if err != nil {
		return nil, fmt.Errorf("publishing %d plans: %w", len(specs), err)
	}
	return plans, nil
}

func (p *Plans) publish(ctx context.Context, specs []repeat.Spec, within func(i int, err error) error) (published []*repeat.Plan, err error) {
	began := clock.Read(p.store.Local())
	if !store.InTransaction(ctx) {
		bounded, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		ctx = bounded
	}
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	now := p.store.Clock.Now()
	plans := make([]*repeat.Plan, len(specs))
	var named []string // by callers: such a plan may be there
	places := map[string]int{}
	var errs []error
	for i := range specs {
		doc, err := p.build(specs[i], now)
		if err != nil {
			errs = append(errs, within(i, err))
			continue
		}
		if specs[i].PlanID != "" {
			named = append(named, doc.ID)
		}
		if first, twice := places[doc.ID]; twice {
			errs = append(errs, within(i, input.Invalid("plan_id", "is %q, as that of plans[%d]", doc.PlanID, first)))
		}
		plans[i], places[doc.ID] = doc, i
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if err := p.types.Fresh(store.Outside(ctx), tasktypes.MaxAge); err != nil {
		return nil, err
	}
	about := attribute.Int("mscheduler.plans", len(plans))
	if len(plans) == 1 {
		about = attribute.String("mscheduler.plan", plans[0].ID)
	}
	from, end := p.tracer.Begin(ctx, "publish", now, about)
	defer func() { end(err) }()
	mark := input.Random()
	for _, doc := range plans {
		doc.Decision = mark
		doc.Trace = from
		if err := p.complete(doc, nil); err != nil {
			return nil, err
		}
		switch {
		case store.InTransaction(ctx):
			doc.PlannedAt = doc.PlannedAt.Add(-decision.Slow) // an engine carries it out as soon as it sees it
		case doc.Status == repeat.StatusRunning:
			doc.PlannedAt = clock.Later(doc.PlanTime, now).Add(endsWithin)
		}
	}
	past := map[string]*repeat.Plan{}
	if len(named) > 0 {
		var err error
		if past, err = p.store.Plans.Past(ctx, named); err != nil {
			return nil, err
		}
	}
	ended := p.beginFirst(ctx, plans, now)
	defer func() { ended(err) }()
	return p.insert(ctx, began, plans, past)
}

// insert stores new plans, but for those that are in the history. A plan leaves the collection long
// after it is in the history, so none that is over is published again.
func (p *Plans) insert(ctx context.Context, began clock.Instant, plans []*repeat.Plan, past map[string]*repeat.Plan) ([]*repeat.Plan, error) {
	var fresh []*repeat.Plan
	places := map[*repeat.Plan]int{}
	for i, doc := range plans {
		if old := past[doc.ID]; old != nil {
			plans[i] = old
			continue
		}
		fresh, places[doc] = append(fresh, doc), i
	}
	var there []*repeat.Plan // of fresh: plans of their ids are there
	rest := fresh
	err := store.WhileHeld(ctx, func() error {
		var held []*repeat.Plan
		for from := 0; from < len(rest); {
			to, bytes := from, 0
			for ; to < len(rest) && (to == from || bytes < insertBytes); to++ {
				bytes += len(rest[to].Messages.Value)
			}
			known, waits, err := p.insertSome(ctx, began, rest[from:to])
			if err != nil {
				return err
			}
			there, held, from = append(there, known...), append(held, waits...), to
		}
		if rest = held; len(held) > 0 {
			return fmt.Errorf("storing the plan %s: %w", held[0].ID, store.ErrHeld)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var first []*repeat.Plan // whose publisher may have died
	for _, mine := range there {
		doc, err := p.Get(ctx, mine.ID)
		if err != nil {
			return nil, err
		}
		doc.Created = doc.Rev == 1 && doc.Decision == mine.Decision // the answer to the insert was lost
		if plans[places[mine]] = doc; doc.Rev == 1 && len(doc.Planned) > 0 {
			first = append(first, doc)
		}
	}
	if len(first) > 0 && !store.InTransaction(ctx) {
		if _, err := p.decider.CarryOut(ctx, first); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// insertSome stores new plans by one command, and sends their first steps. It returns those of whose ids there are
// plans, and those whose ids another client holds.
func (p *Plans) insertSome(ctx context.Context, began clock.Instant, plans []*repeat.Plan) (there, held []*repeat.Plan, err error) {
	if !store.InTransaction(ctx) && began.Since(p.store.Local()) > publishTimeout {
		return nil, nil, fmt.Errorf("this process stood still for more than %v, so what it read before is too old: %w", publishTimeout, context.DeadlineExceeded)
	}
	existed, waits, err := p.store.Plans.Insert(ctx, plans)
	if err != nil {
		return nil, nil, err
	}
	var stored []*repeat.Plan
	for i, doc := range plans {
		switch {
		case slices.Contains(existed, i):
			there = append(there, doc)
		case slices.Contains(waits, i):
			held = append(held, doc)
		default:
			doc.Created = true
			stored = append(stored, doc)
		}
	}
	if !store.InTransaction(ctx) {
		p.leave(ctx, p.decider.Decided(ctx, began, stored...))
	}
	return there, held, nil
}

// leave leaves plans whose first step could not be sent to the engines, which send it in a few seconds, and
// not when it is late. If that fails, too, it is late: see endsWithin.
func (p *Plans) leave(ctx context.Context, plans []*repeat.Plan) {
	if len(plans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := p.store.Plans.PlannedSince(ctx, plans, p.store.Clock.Now()); err != nil {
		p.log.Warn().Err(err).Int("plans", len(plans)).Msg("could not send the first steps of plans; an engine sends them after their times")
	}
}

// leaveTimeout is longer than an election.
const leaveTimeout = 20 * time.Second

// insertBytes is about how much one command stores.
const insertBytes = 4 << 20

const (
	// publishTimeout bounds the time between the look into the history and the insert. It is much
	// shorter than leaveAfter.
	publishTimeout = time.Minute
	// leaveAfter is how long a plan that is over stays in the collection plans.
	leaveAfter = 10 * time.Minute
)

// endsWithin is for how long after its time the first step may stay planned, although its task is sent:
// its end shows that, so most plans are not written once more. If the publisher dies before it sends the
// task, an engine sends it so much later, unless the plan is published again.
const endsWithin = 5 * time.Second

// build makes the document of a plan with its first step.
func (p *Plans) build(s repeat.Spec, now time.Time) (*repeat.Plan, error) {
	callback, err := p.secrets.SealCallback("callback", s.Callback)
	if err != nil {
		return nil, err
	}
	options, err := p.secrets.SealCallback("options.callback", s.Options.Callback)
	if err != nil {
		return nil, err
	}
	s.Callback, s.Options.Callback = callback, options
	id := s.PlanID
	if id == "" {
		id = input.NewKey(now)
	}
	doc, err := stepplan.Build(&s, id, now)
	if err != nil {
		return nil, err
	}
	return stepplan.Begin(doc, now)
}

// complete names a decision. It is refused if it plans a step, beside what is known, that this process
// cannot send.
func (p *Plans) complete(doc *repeat.Plan, known []string) error {
	if slices.ContainsFunc(doc.Planned, func(pl repeat.Planned) bool { return pl.Do == stepplan.DoSend && !slices.Contains(known, pl.ID) }) {
		return p.types.Unread(doc.Station)
	}
	return nil
}

// Get reads a plan, also one that is over. The error is [ErrNotFound] if there is none.
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
	bad := store.Unread{}
	bad.Note("plan", unread)
	return docs, bad.Err()
}

// Results returns at most limit results (1 to 1,000) of a plan, the oldest first. It returns fewer if they
// have more than about 8 MiB together, but at least one unless the list is at its end. The list begins
// behind the result after (nil = at the beginning): Results reads only its ID and At.
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

// Cancel ends a plan: no step follows, and the task of the step that waits or runs is cancelled. Cancel
// changes nothing if the plan is over. remark is kept as the reason.
func (p *Plans) Cancel(ctx context.Context, id, remark string) (*repeat.Plan, error) {
	if err := input.Label("remark", remark); err != nil {
		return nil, err
	}
	return p.change(ctx, "cancelling", id, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
		open := doc.Step > 0 && !doc.Done && !doc.Status.Over()
		if others := doc.Planned; open && !slices.ContainsFunc(others, func(pl repeat.Planned) bool { return pl.Do != stepplan.DoSend }) {
			lives, err := p.store.Tasks.LastLives(ctx, []string{stepplan.TaskID(doc, doc.Step)})
			if err != nil {
				return nil, err
			}
			t, there := lives[stepplan.TaskID(doc, doc.Step)]
			there = there && (t == nil || !stepplan.OfEarlier(doc, t))
			unsent := !there && len(others) > 0 && stepplan.Check(doc) == nil
			open = unsent || there && (t == nil || !lifecycle.Archivable(t.Status) || endPending(t))
		}
		return stepplan.Cancel(doc, remark, open, now), nil
	})
}

// Reset resumes a plan in ERROR: the step that failed starts again. It is refused for other
// plans, and while the document of the plan is broken. If ctx has a span, the steps belong to its trace
// from then on.
func (p *Plans) Reset(ctx context.Context, id string) (*repeat.Plan, error) {
	return p.change(ctx, "resetting", id, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
		after, err := stepplan.Reset(doc, now)
		if err == nil {
			after.Trace = cmp.Or(tracing.Of(ctx, now), doc.Trace)
		}
		return after, err
	})
}

// maxTries is how often a decision is made anew when somebody else decided in between.
const maxTries = 50

// change reads a plan, decides and writes that, again until nobody interferes, and carries out what was
// decided.
func (p *Plans) change(ctx context.Context, doing, id string, decide func(*repeat.Plan, time.Time) (*repeat.Plan, error)) (*repeat.Plan, error) {
	if err := p.ready(ctx); err != nil {
		return nil, fmt.Errorf("%s the plan %s: %w", doing, id, err)
	}
	for range maxTries {
		began := clock.Read(p.store.Local())
		before, err := p.Get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s a plan: %w", doing, err)
		}
		after, err := decide(before, p.store.Clock.Now())
		if err != nil {
			return nil, fmt.Errorf("%s the plan %s: %w", doing, id, err)
		}
		if after == before {
			return before, nil
		}
		applied, err := p.decider.One(ctx, began, store.Decision[*repeat.Plan]{Before: before, After: after})
		if err != nil {
			return nil, fmt.Errorf("%s the plan %s: %w", doing, id, err)
		}
		if applied {
			return after, nil
		}
	}
	return nil, fmt.Errorf("%s the plan %s: somebody else changed it %d times in between", doing, id, maxTries)
}

// Drain plans all steps that can be planned now, and returns. It is for tests, which pass it to
// mstest.With or to consumer.Consumer.Drain:
//
//	mstest.Drain(t, c, mstest.SkipTime(), mstest.With(plans.Drain))
//
// now is the caller's notion of the database's time. Drain advances its own notion to now, never
// backwards. If worked is true, tasks may have become due, and next is the time to look for them.
// Otherwise next is zero: the tasks of waiting steps have their times. Drain also does the work of other
// engines that are alive. Do not call it while [Plans.Run] runs.
func (p *Plans) Drain(ctx context.Context, now time.Time) (next time.Time, worked bool, err error) {
	if err := p.ready(ctx); err != nil {
		return next, false, fmt.Errorf("draining the plans: %w", err)
	}
	p.store.Clock.Skip(max(now.Sub(p.store.Clock.Now()), 0))
	if err := p.types.Fresh(ctx, 0); err != nil {
		return next, false, fmt.Errorf("draining the plans: %w", err)
	}
	if _, worked, err = p.newDecider().Drain(ctx); err != nil {
		return next, worked, fmt.Errorf("draining the plans: %w", err)
	}
	if worked {
		next = p.store.Clock.Now()
	}
	return next, worked, nil
}

func (p *Plans) ready(ctx context.Context) error {
	if err := p.store.Ready(ctx); err != nil {
		return err
	}
	return p.store.FreshClock(ctx)
}
