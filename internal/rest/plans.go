package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

type planAnswer struct {
	Status int
	ETag   string `header:"ETag" doc:"the rev of the plan"`
	Body   document[repeat.Plan]
}

func answerPlan(p *repeat.Plan, err error) (*planAnswer, error) {
	if err != nil {
		return nil, err
	}
	doc, err := view.Stored(p, "id")
	return &planAnswer{Status: http.StatusOK, ETag: etag(p.Rev), Body: document[repeat.Plan]{doc}}, err
}

// planBatch is many plans to publish.
type planBatch struct {
	Plans []form.Plan `json:"plans,omitzero" doc:"1 to 1,000 plans"`
}

type planBatchAnswer struct {
	Body struct {
		Plans []publishedPlan `json:"plans" doc:"one for each plan of the request, in its order"`
	}
}

// publishedPlan is what became of one plan of a batch.
type publishedPlan struct {
	Created bool                  `json:"created" doc:"the request published the plan; otherwise its id already had one"`
	Plan    document[repeat.Plan] `json:"plan"`
}

// Steps selects the steps of a preview.
type Steps struct {
	Count int `query:"count" minimum:"1" maximum:"1000" default:"10" doc:"number of steps"`
}

// addPlans adds what takes definitions.
func (s *API) addPlans() {
	publish := rule{access.Operator, tenantOfBody}
	one := op("publish-plan", http.MethodPost, "/plans", "Publish a plan",
		"A plan_id has at most one plan. A request that is repeated with the same plan_id, or with the same Idempotency-Key if the body has no plan_id, finds the plan that the first one stored, also if it is over.")
	one.DefaultStatus = http.StatusCreated
	one.Responses = map[string]*huma.Response{"200": {Description: "The plan_id already had a plan.", Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/Plan"}}}}}
	add(s, publish, one, s.publish)
	add(s, publish, op("publish-plans", http.MethodPost, "/plans/batch", "Publish up to 1,000 plans",
		"All plans are checked before any is stored. With an Idempotency-Key, plans without a plan_id get one from it and from their place."), s.publishBatch)
	dry := op("preview-definition-of-plan", http.MethodPost, "/plans/preview", "Check the definition of a plan and preview its steps", "Nothing is written. A definition without a plan_id is previewed as (generated).")
	dry.Metadata = map[string]any{dryRun: true}
	add(s, publish, dry, s.previewPlan)
}

// plan is a plan of a request, checked. place is what precedes its fields in errors.
func (s *API) plan(ctx context.Context, f *form.Plan, place, idempotencyKey string) (repeat.Spec, error) {
	if f.PlanID == "" {
		f.PlanID = idempotencyKey
	}
	tenant, err := tenantIn(ctx, "body."+place+"tenant", f.Tenant)
	if err != nil {
		return repeat.Spec{}, err
	}
	if f.Tenant = tenant; tenant == model.NoTenant {
		f.Tenant = ""
	}
	spec, err := f.Spec()
	_, sealed := s.secrets.SealCallback("callback", spec.Callback)
	_, ofTasks := s.secrets.SealCallback("options.callback", spec.Options.Callback)
	return spec, input.Renamed(errors.Join(err, plan.Validate(spec), builtin.CheckStation(spec.Station), sealed, ofTasks), func(field string) string { return "body." + place + field })
}

func (s *API) publish(ctx context.Context, in *struct {
	Idempotent
	Body body[form.Plan]
}) (*planAnswer, error) {
	spec, err := s.plan(ctx, in.Body.form, "", in.RequestKey)
	if err != nil {
		return nil, err
	}
	p, err := s.plans.Publish(ctx, spec)
	out, err := answerPlan(p, input.Under("body", err))
	if err == nil && p.Created {
		out.Status = http.StatusCreated
	}
	return out, err
}

func (s *API) publishBatch(ctx context.Context, in *struct {
	Idempotent
	Body body[planBatch]
}) (*planBatchAnswer, error) {
	plans := in.Body.form.Plans
	if n := len(plans); n < 1 || n > maxBatch {
		return nil, input.Invalid("body.plans", "has %d plans; want 1 to %d", n, maxBatch)
	}
	specs := make([]repeat.Spec, len(plans))
	var bad []error
	for i := range plans {
		key := in.RequestKey
		if key != "" {
			key = fmt.Sprintf("%s-%d", key, i)
		}
		var err error
		if specs[i], err = s.plan(ctx, &plans[i], fmt.Sprintf("plans[%d].", i), key); err != nil && !errors.Is(err, model.ErrInvalid) {
			return nil, err
		}
		bad = append(bad, err)
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	stored, err := s.plans.PublishMany(ctx, specs)
	if err != nil {
		return nil, input.Under("body", err)
	}
	docs, err := documentsOf(stored)
	out := &planBatchAnswer{}
	for i, doc := range docs {
		out.Body.Plans = append(out.Body.Plans, publishedPlan{stored[i].Created, doc})
	}
	return out, err
}

func (s *API) previewPlan(ctx context.Context, in *struct {
	Steps
	Body body[form.Plan]
}) (*answer[view.PlanPreview], error) {
	spec, err := s.plan(ctx, in.Body.form, "", "")
	if err != nil {
		return nil, err
	}
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	doc, err := stepplan.Unpublished(&spec, now)
	if err != nil {
		return nil, input.Under("body", err)
	}
	return answered(view.PlanPreviewOf(doc, now, time.Time{}, in.Count))
}
