package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// PlanPath is the id of a plan, tenant/plan_id, as a path.
type PlanPath struct {
	Tenant string `path:"tenant" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"tenant of the plan; - for a plan without one"`
	PlanID string `path:"plan_id" maxLength:"128" doc:"id of the plan within its tenant"`
}

func (p *PlanPath) id() string { return p.Tenant + "/" + p.PlanID }

const planAt = "/plans/{tenant}/{plan_id}"

type planList struct {
	Body struct {
		Plans      []document[repeat.Plan] `json:"plans" doc:"without their messages"`
		Unreadable []unreadable            `json:"unreadable,omitempty" doc:"plans on the way to the end of the page that this release cannot read; none of their steps starts"`
		Next       string                  `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

type resultList struct {
	Body struct {
		Results []document[repeat.Result] `json:"results"`
		Next    string                    `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

// addPlanCommands adds what is about published plans.
func (s *API) addPlanCommands() {
	read, change := rule{access.Viewer, tenantOfPath}, rule{access.Operator, tenantOfPath}
	add(s, rule{access.Viewer, tenantOfFilter}, op("list-plans", http.MethodGet, "/plans", "List plans, most recently changed first",
		"Plans that are over are in the history: over lists those, as does the status FINISH or CANCELLED. A plan that changes meanwhile moves to the first page. "+sparse), s.listPlans)
	add(s, read, op("get-plan", http.MethodGet, planAt, "Get a plan, also one that is over", ""), func(ctx context.Context, in *struct{ PlanPath }) (*planAnswer, error) {
		return answerPlan(s.plans.Get(ctx, in.id()))
	})
	add(s, read, op("list-results", http.MethodGet, planAt+"/results", "List what the participants of a plan's steps did, the oldest first unless sorted otherwise",
		"A step that needs several workers has a result of each; one that was started again has those of each try."), s.listResults)
	add(s, read, op("preview-plan", http.MethodGet, planAt+"/preview", "Preview the next steps of a plan, if each ends as soon as it starts", ""), func(ctx context.Context, in *struct {
		PlanPath
		Steps
		From time.Time `query:"from" doc:"steps whose time is this or later"`
	}) (*answer[view.PlanPreview], error) {
		p, err := s.plans.Get(ctx, in.id())
		if err != nil {
			return nil, err
		}
		now, err := s.store.ServerTime(ctx)
		if err != nil {
			return nil, err
		}
		return answered(view.PlanPreviewOf(p, now, in.From, in.Count))
	})
	add(s, change, op("cancel-plan", http.MethodPost, planAt+"/cancel", "Cancel a plan",
		"No step follows, and the task of the step that waits or runs is cancelled. A plan that is over stays as it is."), func(ctx context.Context, in *struct {
		PlanPath
		Body *body[remarked]
	}) (*planAnswer, error) {
		p, err := s.plans.Cancel(ctx, in.id(), said(in.Body).Remark)
		return answerPlan(p, input.Under("body", err))
	})
	add(s, change, op("reset-plan", http.MethodPost, planAt+"/reset", "Let a plan that is ERROR go on",
		"The step that failed starts again. Other plans are refused."), func(ctx context.Context, in *struct{ PlanPath }) (*planAnswer, error) {
		return answerPlan(s.plans.Reset(ctx, in.id()))
	})
}

func (s *API) listPlans(ctx context.Context, in *struct {
	Tenant  string        `query:"tenant" doc:"tenant; - for plans without one"`
	Station string        `query:"station" doc:"type of the steps' tasks"`
	Status  repeat.Status `query:"status" enum:"RUNNING,ERROR,FINISH,CANCELLED"`
	Over    bool          `query:"over" doc:"the plans that are over, in place of the others"`
	PlanID  string        `query:"plan_id" maxLength:"400" doc:"plans of the tenant whose plan_id begins with this text, sorted by it; needs tenant"`
	Sort    string        `query:"sort" enum:"-updated_at,updated_at" default:"-updated_at" doc:"by the last change: - = the last one first"`
	Page
}) (*planList, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	f := store.PlanFilter{Tenant: tenant, Station: in.Station, Status: in.Status, Over: in.Over || stepplan.Over(in.Status)}
	if f.Over && in.Status != "" && !stepplan.Over(in.Status) {
		return nil, input.Invalid("over", "lists plans that are over; %s is none of them", in.Status)
	}
	unread := store.Unread{}
	if in.PlanID != "" {
		plans, next, err := begun(tenant, "plan_id", in.Token, "plan", in.Limit, unread, func(after string, limit int) ([]*repeat.Plan, []store.Unreadable, error) {
			return s.store.Plans.Named(ctx, tenant, f.Over, in.PlanID, after, limit)
		}, func(p *repeat.Plan) string { return p.ID }, func(p *repeat.Plan) bool {
			return (f.Status == "" || p.Status == f.Status) && (f.Station == "" || p.Station == f.Station)
		})
		return answerPlans(plans, unread, next, err)
	}
	span, err := spanOf(in.Page, in.Sort == "updated_at")
	if err != nil {
		return nil, err
	}
	plans, next, err := spanned(ctx, span, func(ctx context.Context, span store.Span) (time.Time, error) {
		return s.store.Plans.Bound(ctx, f, span)
	}, func(ctx context.Context, span store.Span) ([]*repeat.Plan, error) {
		return readable(span, "plan", unread, func(span store.Span) ([]*repeat.Plan, []store.Unreadable, error) {
			return s.store.Plans.List(ctx, f, span)
		})
	}, func(p *repeat.Plan) place { return place{p.UpdatedAt, p.ID} })
	return answerPlans(plans, unread, next, err)
}

func answerPlans(plans []*repeat.Plan, unread store.Unread, next string, err error) (*planList, error) {
	if err != nil {
		return nil, err
	}
	out := &planList{}
	out.Body.Unreadable, out.Body.Next = listed(unread), next
	out.Body.Plans, err = documentsOf(plans)
	return out, err
}

func (s *API) listResults(ctx context.Context, in *struct {
	PlanPath
	Sort    string    `query:"sort" enum:"at,-at" default:"at" doc:"by the time of the result: - = the newest first"`
	From    time.Time `query:"from" doc:"of steps whose time is this or later"`
	To      time.Time `query:"to" doc:"of steps whose time is before this"`
	Outputs bool      `query:"outputs" default:"true" doc:"false: without what the participants returned. With it, a page also ends when it has about 8 MiB"`
	Page
}) (*resultList, error) {
	from, err := placeOf(in.Token)
	if err != nil {
		return nil, err
	}
	if _, err := s.plans.Get(ctx, in.id()); err != nil {
		return nil, err
	}
	out := &resultList{}
	out.Body.Results = []document[repeat.Result]{}
	of, none, err := s.store.Results.EndsFor(ctx, in.id(), in.From, in.To)
	if err != nil || none {
		return out, err
	}
	var after *repeat.Result
	if from.id != "" {
		after = &repeat.Result{ID: from.id, At: from.at}
	}
	results, more, err := s.store.Results.List(ctx, in.id(), store.ResultPage{Ended: of, Newest: in.Sort == "-at", After: after, Limit: in.Limit, States: !in.Outputs})
	if err != nil {
		return nil, err
	}
	if more {
		last := results[len(results)-1]
		out.Body.Next = place{last.At, last.ID}.token()
	}
	out.Body.Results, err = documentsOf(results)
	return out, err
}
