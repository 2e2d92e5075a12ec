package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// AnyMatch is the header of commands that may name the version that the caller read.
type AnyMatch struct {
	IfMatch
}

// version is the version that the command names; 0 = any.
func (m AnyMatch) version() (int64, error) {
	if m.IfMatch.IfMatch == "" {
		return 0, nil
	}
	return m.IfMatch.version()
}

// noted is the body of a command that stops a rule, or the claiming of tasks.
type noted struct {
	Note string `json:"note,omitzero" doc:"the reason, shown to other operators"`
}

// triggering is the body of a trigger.
type triggering struct {
	Request string `json:"request,omitzero" doc:"name of the request: repeating it does not start another run (default: the header Idempotency-Key)"`
	Force   bool   `json:"force,omitzero" doc:"ignore the concurrency limit, up to 1,000 runs"`
}

// backfilling is the body of a backfill.
type backfilling struct {
	From    *form.Time `json:"from,omitzero" doc:"the first nominal time"`
	To      *form.Time `json:"to,omitzero" doc:"the end, exclusive (default: now)"`
	Request string     `json:"request,omitzero" doc:"name of the request: repeating it does not run its ticks again (default: the header Idempotency-Key)"`
}

type backfillAnswer struct {
	Body struct {
		ID   string `json:"id" doc:"id of the rule"`
		Runs int    `json:"runs" doc:"how many runs were decided; ticks that the request has run before are none"`
		From string `json:"from" format:"date-time"`
		To   string `json:"to" format:"date-time"`
	}
}

func (s *API) addPeriodicCommands() {
	change := rule{access.Operator, tenantOfPath}
	add(s, change, op("enable-periodic", http.MethodPost, ruleAt+"/enable", "Let a periodic rule fire from now on",
		"Ticks that it missed while it was disabled are recorded as skipped."), func(ctx context.Context, in *struct {
		RulePath
		AnyMatch
	}) (*ruleAnswer, error) {
		return s.turn(ctx, in.RulePath, in.AnyMatch, s.rules.Enable)
	})
	add(s, change, op("disable-periodic", http.MethodPost, ruleAt+"/disable", "Stop a periodic rule from firing", "Running and waiting runs go on."), func(ctx context.Context, in *struct {
		RulePath
		AnyMatch
		Body *body[noted]
	}) (*ruleAnswer, error) {
		return s.turn(ctx, in.RulePath, in.AnyMatch, func(ctx context.Context, id string, version int64) (*schedule.Rule, error) {
			r, err := s.rules.Disable(ctx, id, version, said(in.Body).Note)
			return r, input.Under("body", err)
		})
	})
	add(s, change, op("trigger-periodic", http.MethodPost, ruleAt+"/trigger", "Start a run of a periodic rule now",
		"The rule may be disabled. Its concurrency limit applies: the run may wait, or be SKIPPED, which the status says. The policies for overlaps and failures do not apply."), s.trigger)
	add(s, change, op("backfill-periodic", http.MethodPost, ruleAt+"/backfill", "Run a periodic rule for its past ticks, at most 1,000",
		"The runs keep to the rule's concurrency limit, and wait behind those of new ticks."), s.backfill)
}

// said is what a body says that may be absent.
func said[T any](b *body[T]) *T {
	if b == nil {
		return new(T)
	}
	return b.form
}

// turn enables or disables a rule.
func (s *API) turn(ctx context.Context, at RulePath, match AnyMatch, do func(ctx context.Context, id string, version int64) (*schedule.Rule, error)) (*ruleAnswer, error) {
	version, err := match.version()
	if err != nil {
		return nil, err
	}
	r, err := at.rule(ctx, s)
	if err != nil {
		return nil, err
	}
	return answerRule(do(ctx, r.ID, version))
}

// named is the name of a request: that of the body, or of the header.
func (i Idempotent) named(body string) (string, error) {
	if body != "" || i.RequestKey == "" {
		return body, nil
	}
	return i.RequestKey, input.Name("header.Idempotency-Key", i.RequestKey)
}

func (s *API) trigger(ctx context.Context, in *struct {
	RulePath
	Idempotent
	Body *body[triggering]
}) (*answer[rulechange.Triggered], error) {
	f := said(in.Body)
	request, err := in.named(f.Request)
	if err != nil {
		return nil, err
	}
	r, err := in.rule(ctx, s)
	if err != nil {
		return nil, err
	}
	run, err := s.rules.Trigger(ctx, r.ID, periodic.TriggerOptions{Request: request, Force: f.Force})
	if err != nil {
		return nil, input.Under("body", err)
	}
	return answered(rulechange.WhatBecame(ctx, s.store, s.rules, run, f.Force))
}

func (s *API) backfill(ctx context.Context, in *struct {
	RulePath
	Idempotent
	Body body[backfilling]
}) (*backfillAnswer, error) {
	f := in.Body.form
	if f.From == nil {
		return nil, input.Invalid("body.from", "is required")
	}
	request, err := in.named(f.Request)
	if err != nil {
		return nil, err
	}
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	from, err := timeOf("body.from", f.From, now)
	if err != nil {
		return nil, err
	}
	to, err := timeOf("body.to", f.To, now)
	if err != nil {
		return nil, err
	}
	r, err := in.rule(ctx, s)
	if err != nil {
		return nil, err
	}
	n, err := s.rules.Backfill(ctx, r.ID, from, to, request)
	if err != nil {
		return nil, input.Under("body", err)
	}
	out := &backfillAnswer{}
	out.Body.ID, out.Body.Runs, out.Body.From, out.Body.To = r.ID, n, view.Time(from), view.Time(to)
	return out, nil
}

// timeOf is the time that a field says, or now where it says none.
func timeOf(field string, t *form.Time, now time.Time) (time.Time, error) {
	if t == nil {
		return now, nil
	}
	at, err := form.ParseTime(string(*t), time.UTC, now)
	if err != nil {
		return at, input.Invalid(field, "is %q; %v", string(*t), err)
	}
	return at, nil
}
