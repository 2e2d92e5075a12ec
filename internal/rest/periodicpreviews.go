package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Ticks selects the ticks of a preview.
type Ticks struct {
	Count int       `query:"count" minimum:"1" maximum:"1000" default:"10" doc:"number of ticks"`
	From  time.Time `query:"from" doc:"ticks after this time (default: now)"`
}

type ticksAnswer struct {
	Body struct {
		Ticks []view.NextTick `json:"ticks" doc:"the next ticks, also those that a change of clocks leaves out"`
	}
}

type dryRunAnswer struct {
	Body struct {
		Result   string               `json:"result" enum:"created,changed,unchanged" doc:"what storing the definition would do"`
		Changes  []string             `json:"changes" doc:"the difference to the stored rule, a line for each field"`
		Ticks    []view.NextTick      `json:"ticks" doc:"the next ticks, if the rule is enabled"`
		Forecast *rulechange.Forecast `json:"forecast,omitempty" doc:"what becomes of ticks, as the rule is stored and as it would be"`
	}
}

type definitionAnswer struct {
	ETag string `header:"ETag" doc:"the version of the rule"`
	Body written[form.Rule]
}

func (s *API) addPeriodicPreviews() {
	add(s, rule{access.Viewer, tenantOfPath}, op("get-periodic-definition", http.MethodGet, ruleAt+"/definition", "Get the definition of a periodic rule, as its storing takes it",
		"Secrets are ***, which stands for the stored one."), func(ctx context.Context, in *struct{ RulePath }) (*definitionAnswer, error) {
		r, err := in.rule(ctx, s)
		if err != nil {
			return nil, err
		}
		spec := periodic.SpecOf(r)
		f := form.RuleOf(&spec)
		f.Enabled = new(tickplan.Enabled(r))
		return &definitionAnswer{ETag: etag(r.Version), Body: written[form.Rule]{f}}, nil
	})
	add(s, rule{access.Viewer, tenantOfPath}, op("preview-periodic", http.MethodGet, ruleAt+"/preview", "Preview the next ticks of a periodic rule",
		"A disabled rule is previewed as if it were enabled."), func(ctx context.Context, in *struct {
		RulePath
		Ticks
	}) (*ticksAnswer, error) {
		r, err := in.rule(ctx, s)
		if err != nil {
			return nil, err
		}
		now, err := s.store.ServerTime(ctx)
		if err != nil {
			return nil, err
		}
		out := &ticksAnswer{}
		out.Body.Ticks, err = in.of(r, now)
		return out, err
	})
	dry := op("dry-run-periodic", http.MethodPost, "/periodics/preview", "Check a definition and preview what storing it would do",
		"Nothing is written. If the tenant has a rule with that name, the definition is compared with it, and the forecast looks back and ahead as many days: it decides the ticks of both as the planner does. Runs take as long as the recorded ones, and end as those did.")
	dry.Metadata = map[string]any{dryRun: true}
	add(s, rule{access.Operator, tenantOfBody}, dry, s.dryRun)
	span := s.api.OpenAPI().Components.Schemas.Map()["ForecastSpan"].Properties
	span["stored"] = &huma.Schema{AnyOf: []*huma.Schema{span["stored"], {Type: "null"}}, Description: "null for a rule that is not stored"}
}

// of are the ticks of a rule.
func (t *Ticks) of(r *schedule.Rule, now time.Time) ([]view.NextTick, error) {
	from := t.From
	if from.IsZero() {
		from = now
	}
	ticks, err := tickplan.Preview(r, from, t.Count)
	out := []view.NextTick{}
	for _, x := range ticks {
		out = append(out, view.NextTickOf(x))
	}
	return out, err
}

func (s *API) dryRun(ctx context.Context, in *struct {
	Ticks
	Days     int   `query:"forecast_days" minimum:"0" maximum:"366" default:"0" doc:"how far the forecast looks back, and ahead; 0 = no forecast"`
	RunTakes int64 `query:"run_takes_ms" minimum:"0" maximum:"31622400000" doc:"how long a run takes in the forecast; 0 = as the recorded ones"`
	Body     body[form.Rule]
}) (*dryRunAnswer, error) {
	f := in.Body.form
	tenant, err := tenantIn(ctx, "body.tenant", f.Tenant)
	if err != nil {
		return nil, err
	}
	f.Tenant = tenant
	stored, err := s.rules.Named(ctx, f.Tenant, f.Name)
	if errors.Is(err, store.ErrNoRule) {
		stored, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	edit, err := s.edit(ctx, f, stored)
	if err != nil {
		return nil, err
	}
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	out := &dryRunAnswer{}
	out.Body.Changes = append([]string{}, edit.Lines()...)
	switch {
	case stored == nil:
		out.Body.Result = "created"
	case len(out.Body.Changes) > 0:
		out.Body.Result = "changed"
	default:
		out.Body.Result = "unchanged"
	}
	r, err := edit.Rule(now)
	if err != nil {
		return nil, err
	}
	if out.Body.Ticks, err = in.of(r, now); err == nil && in.Days > 0 {
		err = s.forecasts.within(ctx, func() (err error) {
			out.Body.Forecast, err = edit.Forecast(ctx, s.rules, rulechange.Window{Now: now, Days: in.Days, Takes: time.Duration(in.RunTakes) * time.Millisecond})
			return err
		})
	}
	return out, err
}
