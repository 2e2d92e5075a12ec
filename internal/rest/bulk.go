package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// JobPath names a bulk job.
type JobPath struct {
	Tenant string `path:"tenant" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"tenant of the job; - for a job without one"`
	ID     string `path:"id" maxLength:"400" doc:"id of the job"`
}

// startedAnswer is a job that was started, or the count of a dry run.
type startedAnswer struct {
	Status   int
	Location string `header:"Location" doc:"the path of the job that was started"`
	Body     any
}

type counted struct {
	Matched int64 `json:"matched" doc:"how many tasks the job would go over"`
}

type jobList struct {
	Body struct {
		Jobs []*bulk.JobState `json:"jobs"`
		Next string           `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

const jobAt = "/bulk/{tenant}/{id}"

func (s *API) addBulk() {
	schemas := s.api.OpenAPI().Components.Schemas
	content := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(t, true, "")}}
	}
	add(s, rule{access.Operator, tenantOfBody}, huma.Operation{
		OperationID: "start-bulk", Method: http.MethodPost, Path: "/bulk", Tags: []string{"bulk"}, Summary: "Change all tasks of a filter, in the background",
		Description: "Counts the tasks with dry_run. Otherwise starts a job, which a worker runs page by page; another one continues where it stopped if the worker dies. " +
			"A job changes only tasks that were created before its start. A request that is repeated with the same Idempotency-Key finds the job of the first one. Another request with that key is refused (409).",
		DefaultStatus: http.StatusAccepted,
		Responses: map[string]*huma.Response{
			"200": {Description: "The count of a dry run.", Content: content(reflect.TypeFor[counted]())},
			"202": {Description: "The job.", Content: content(reflect.TypeFor[bulk.JobState]()), Headers: map[string]*huma.Param{"Location": {Schema: &huma.Schema{Type: huma.TypeString}, Description: "the path of the job"}}},
		},
	}, s.startBulk)
	add(s, rule{access.Viewer, tenantOfFilter}, op("list-bulk", http.MethodGet, "/bulk", "List the bulk jobs of a tenant, sorted by id",
		"Without a tenant, those that no tenant owns: their filters name no tenant, or - for tasks without one. A token with tenants sees no job whose filter names none. Ids that the server chose sort by the time of the start."), s.listBulk)
	add(s, rule{access.Viewer, tenantOfPath}, op("get-bulk", http.MethodGet, jobAt, "Get a bulk job: what it does, and how far it is", ""), func(ctx context.Context, in *struct{ JobPath }) (*answer[*bulk.JobState], error) {
		return answered(s.jobs.Get(ctx, in.Tenant, in.ID))
	})
	add(s, rule{access.Operator, tenantOfPath}, op("stop-bulk", http.MethodPost, jobAt+"/stop", "Stop a bulk job",
		"The job is Cancelled within seconds. What it has changed stays as it is."), func(ctx context.Context, in *struct {
		JobPath
		Body *body[remarked]
	}) (*answer[*bulk.JobState], error) {
		return answered(s.jobs.Stop(ctx, in.Tenant, in.ID, said(in.Body).Remark))
	})
}

// jobInput is the input of start-bulk.
type jobInput struct {
	Idempotent
	Body body[bulk.Job]
}

func (in *jobInput) dry() bool { return in.Body.form.DryRun }

func (s *API) startBulk(ctx context.Context, in *jobInput) (*startedAnswer, error) {
	j := in.Body.form
	if j.Filter == nil {
		return nil, input.Invalid("body.filter", "is required")
	}
	tenant, err := tenantIn(ctx, "body.filter.tenant", j.Filter.Tenant)
	if err != nil {
		return nil, err
	}
	if tenant != j.Filter.Tenant { // the only one of the token
		if j.Filter.Empty() {
			return nil, input.Invalid("body.filter", "says nothing; to select every task of the tenant, name it")
		}
		j.Filter.Tenant = tenant
	}
	if j.DryRun {
		var n int64
		err := s.counts.within(ctx, func() (err error) {
			n, err = s.jobs.Count(ctx, j)
			return err
		})
		return &startedAnswer{Status: http.StatusOK, Body: counted{n}}, input.Under("body", err)
	}
	v, err := s.jobs.Start(ctx, j, in.RequestKey, grantOf(ctx).Name)
	if err == nil && grantOf(ctx).Tenants != nil && v.OfAllTenants() {
		err = bulk.ErrOtherJob
	}
	if errors.Is(err, bulk.ErrOtherJob) {
		return nil, huma.Error409Conflict(err.Error())
	}
	if err != nil {
		return nil, input.Under("body", err)
	}
	return &startedAnswer{Status: http.StatusAccepted, Location: s.config.Mount + "/api/v1/bulk/" + v.Tenant + "/" + url.PathEscape(v.ID), Body: *v}, nil
}

func (s *API) listBulk(ctx context.Context, in *struct {
	Tenant string `query:"tenant" doc:"tenant; - for jobs without one, which is the default for a token without tenants"`
	Page
}) (*jobList, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	out := &jobList{}
	out.Body.Jobs, out.Body.Next, err = s.jobs.List(ctx, cmp.Or(tenant, model.NoTenant), in.Limit, in.Token)
	if grantOf(ctx).Tenants != nil {
		out.Body.Jobs = slices.DeleteFunc(out.Body.Jobs, (*bulk.JobState).OfAllTenants)
	}
	return out, err
}
