package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/facts"
)

type explainAnswer struct{ Body facts.Explained }

func (s *API) addExplain() {
	add(s, rule{access.Viewer, tenantOfPath}, huma.Operation{
		OperationID: "explain-task", Method: http.MethodGet, Path: taskAt + "/explain", Tags: []string{"tasks"}, Summary: "Explain a task's state and what happens next",
		Description: "Sentences for people. A token with tenants is told neither of other tenants' tasks nor which workers there are.",
	}, func(ctx context.Context, in *struct{ TaskPath }) (*explainAnswer, error) {
		var sees func(string) bool
		if g := grantOf(ctx); g.Tenants != nil {
			sees = g.Sees
		}
		e, err := facts.Explain(ctx, s.store, in.id(), sees)
		return &explainAnswer{e}, err
	})
}
