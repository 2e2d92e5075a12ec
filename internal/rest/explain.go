package rest

import (
	"context"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/facts"
)

func (s *API) addExplain() {
	add(s, rule{access.Viewer, tenantOfPath}, op("explain-task", http.MethodGet, taskAt+"/explain", "Explain a task's state and what happens next",
		"Sentences for people. They tell a token with tenants nothing about other tenants' tasks, and name no workers."), func(ctx context.Context, in *struct{ TaskPath }) (*answer[facts.Explained], error) {
		var sees func(string) bool
		if g := grantOf(ctx); g.Tenants != nil {
			sees = g.Sees
		}
		return answered(facts.Explain(ctx, s.store, in.id(), sees))
	})
}
