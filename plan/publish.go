package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Publish stores a plan and the task of its first step. If a plan with the id exists, also one that is
// over, Publish returns that plan, whose Created is false, and changes nothing. A plan whose last time
// has passed is stored as FINISH. If a transaction runs on the session in ctx, the plan is part of it, and
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
	ctx = store.Inside(ctx)
	began := clock.Read(p.store.Local())
	if !store.InTransaction(ctx) {
		bounded, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		ctx = bounded
	}
	if err := p.store.Prepare(ctx); err != nil {
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
