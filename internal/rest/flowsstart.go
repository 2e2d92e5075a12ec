package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

// startAnswer is a flow that was started, or found.
type startAnswer struct {
	Status int
	ETag   string `header:"ETag" doc:"the rev of the flow"`
	Body   view.Flow
}

func (s *API) addFlowStarts() {
	start := op("start-flow", http.MethodPost, "/flows", "Start a flow",
		"The flow is stored completely or not at all. A key has at most one flow: a request that is repeated with the same key, or with the same Idempotency-Key if the body has no key, finds the flow that the first one started. An engine of flows must run somewhere for the flow to go on.")
	start.DefaultStatus = http.StatusCreated
	start.Responses = map[string]*huma.Response{"200": {Description: "The key already had a flow.", Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/Flow"}}}}}
	add(s, rule{access.Operator, tenantOfBody}, start, func(ctx context.Context, in *struct {
		Idempotent
		Body body[form.Flow]
	}) (*startAnswer, error) {
		spec, err := flowSpec(ctx, in.Body.form, in.RequestKey)
		if err != nil {
			return nil, err
		}
		doc, err := s.flows.Start(ctx, spec)
		if err != nil {
			return nil, input.Under("body", err)
		}
		out := &startAnswer{http.StatusOK, etag(doc.Rev), view.FlowOf(doc)}
		if doc.Created {
			out.Status = http.StatusCreated
		}
		return out, nil
	})
	add(s, rule{access.Viewer, tenantOfBody}, op("validate-flow", http.MethodPost, "/flows/validate", "Check a flow without starting it",
		"Everything is checked, and each mistake is named. With picture= the answer has the graph, too. Nothing is written."), func(ctx context.Context, in *struct {
		Picture string `query:"picture" enum:"svg,dot,mermaid" doc:"draws the graph: as a picture (SVG), or in the language of Graphviz or Mermaid"`
		Body    body[form.Flow]
	}) (*answer[view.ValidFlow], error) {
		spec, err := flowSpec(ctx, in.Body.form, "")
		if err != nil {
			return nil, err
		}
		out := view.ValidFlowOf(&spec)
		if in.Picture != "" {
			out.Picture, err = view.DrawSpec(in.Picture, &spec, s.store.Clock.Now())
		}
		return answered(out, err)
	})
}

// flowSpec is a flow of a request, in which nothing is wrong.
func flowSpec(ctx context.Context, f *form.Flow, idempotencyKey string) (graph.Spec, error) {
	if f.Key == "" {
		f.Key = idempotencyKey
	}
	var err error
	if f.Tenant, err = tenantIn(ctx, "body.tenant", f.Tenant); err != nil {
		return graph.Spec{}, err
	}
	if f.Tenant == model.NoTenant {
		f.Tenant = ""
	}
	spec, err := f.Spec()
	return spec, input.Under("body", errors.Join(err, flow.Validate(spec), builtin.CheckNodes(spec.Nodes)))
}
