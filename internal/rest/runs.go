package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// RunPath names a run of a periodic rule. Runs stay when their rule is deleted, so the path has no rule.
type RunPath struct {
	Tenant string `path:"tenant" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"tenant of the rule; - for a rule without one"`
	Run    string `path:"run" maxLength:"400" doc:"id of the run: rule@time, or rule!request"`
}

const runAt = "/runs/{tenant}/{run}"

// RunFilter selects runs.
type RunFilter struct {
	Status []string  `query:"status" enum:"SCHEDULED,QUEUED,RUNNING,WAITING_CALLBACK,SUCCESS,FAILED,TIMEOUT,FAILED_TIMEOUT,CANCELED,SKIPPED" doc:"any of these"`
	From   time.Time `query:"from" doc:"of ticks at this time or later"`
	To     time.Time `query:"to" doc:"of ticks before this time"`
	Sort   string    `query:"sort" enum:"-nominal,nominal" default:"-nominal" doc:"by the time of the tick: - = the newest first"`
}

type runList struct {
	Body struct {
		Runs       []view.Run   `json:"runs"`
		Unreadable []unreadable `json:"unreadable,omitempty" doc:"records on the way to the end of the page that this release cannot read"`
		Next       string       `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

func (s *API) addRuns() {
	add(s, rule{access.Viewer, tenantOfPath}, among("runs", op("list-runs-of-periodic", http.MethodGet, ruleAt+"/runs", "List the runs of a periodic rule, the newest tick first", sparse)), func(ctx context.Context, in *struct {
		RulePath
		RunFilter
		Page
	}) (*runList, error) {
		r, err := in.rule(ctx, s)
		if err != nil {
			return nil, err
		}
		return s.listRuns(ctx, r.ID, in.Tenant, in.RunFilter, in.Page)
	})
	add(s, rule{access.Viewer, tenantOfFilter}, op("list-runs", http.MethodGet, "/runs", "List the runs of all periodic rules, the newest tick first", sparse), func(ctx context.Context, in *struct {
		Tenant string `query:"tenant" doc:"tenant; - for rules without one"`
		RuleID string `query:"rule_id" maxLength:"100" doc:"id of a rule, which may be deleted"`
		RunFilter
		Page
	}) (*runList, error) {
		tenant, err := tenantIn(ctx, "tenant", in.Tenant)
		if err != nil {
			return nil, err
		}
		return s.listRuns(ctx, in.RuleID, tenant, in.RunFilter, in.Page)
	})
	add(s, rule{access.Viewer, tenantOfPath}, op("get-run", http.MethodGet, runAt, "Get a run, with the last request and response of an HTTP target", ""), func(ctx context.Context, in *struct{ RunPath }) (*answer[view.Run], error) {
		run, err := s.rules.GetRun(ctx, in.Run)
		if err == nil && !in.owns(run.Tenant) {
			err = store.ErrNoRun
		}
		if err != nil {
			return nil, err
		}
		return answered(view.RunOf(run), nil)
	})
	add(s, rule{access.Operator, tenantOfPath}, op("cancel-run", http.MethodPost, runAt+"/cancel", "Cancel a run that waits or runs",
		"A run that waits is CANCELED at once. Of one that runs the task is cancelled: the run is CANCELED when the task has ended."), s.cancelRun)
}

// owns says whether the tenant of a document is that of the path.
func (p *RunPath) owns(tenant string) bool {
	return tenant == p.Tenant || tenant == "" && p.Tenant == model.NoTenant
}

func (s *API) listRuns(ctx context.Context, ruleID, tenant string, in RunFilter, page Page) (*runList, error) {
	f := periodic.RunFilter{Tenant: tenant, From: in.From, To: in.To, Oldest: in.Sort == "nominal"}
	span, err := spanOf(page, f.Oldest)
	if err != nil {
		return nil, err
	}
	for _, status := range in.Status {
		f.Statuses = append(f.Statuses, schedule.RunStatus(status))
	}
	unread := store.Unread{}
	runs, next, err := spanned(ctx, span, func(ctx context.Context, span store.Span) (time.Time, error) {
		return s.store.Runs.Bound(ctx, store.RunFilter{RuleID: ruleID, From: in.From, To: in.To}, span)
	}, func(ctx context.Context, span store.Span) ([]*schedule.Run, error) {
		f, after := f, (*schedule.Run)(nil)
		switch {
		case span.Until.IsZero():
		case f.Oldest:
			f.To = span.Until.Add(time.Millisecond)
		default:
			f.From = span.Until
		}
		if !span.At.IsZero() {
			after = &schedule.Run{ID: span.ID, Nominal: span.At}
		}
		runs, err := s.rules.Runs(ctx, ruleID, f, after, span.Limit)
		return runs, unread.Add(err)
	}, func(r *schedule.Run) place { return place{r.Nominal, r.ID} })
	if err != nil {
		return nil, err
	}
	out := &runList{}
	out.Body.Runs, out.Body.Unreadable, out.Body.Next = []view.Run{}, listed(unread), next
	for _, r := range runs {
		out.Body.Runs = append(out.Body.Runs, view.RunOf(r))
	}
	return out, nil
}

func (s *API) cancelRun(ctx context.Context, in *struct{ RunPath }) (*answer[view.Run], error) {
	r, err := s.store.Rules.Get(ctx, tickplan.RuleOf(in.Run))
	if errors.Is(err, store.ErrNoRule) || err == nil && !in.owns(r.Tenant) {
		err = store.ErrNoRun
	}
	if err == nil {
		err = s.rules.Cancel(ctx, in.Run)
	}
	if err != nil {
		return nil, err
	}
	run, err := s.rules.GetRun(ctx, in.Run)
	if errors.Is(err, store.ErrNoRun) { // it waited, and its rule keeps no records
		run, err = &schedule.Run{ID: in.Run, RuleID: r.ID, RuleName: r.Name, Tenant: r.Tenant, Status: schedule.RunCanceled}, nil
	}
	if err != nil {
		return nil, err
	}
	return answered(view.RunOf(run), nil)
}
