package rest

import (
	"context"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
)

type executionList struct {
	Body struct {
		Executions []view.Execution `json:"executions"`
		Complete   bool             `json:"complete" doc:"false if there are more executions than limit, or more running tasks than were examined"`
	}
}

func (s *API) addExecutions() {
	add(s, rule{access.Viewer, everyTenant}, among("workers", op("list-executions", http.MethodGet, "/executions", "List open executions: what workers hold now",
		"Sorted by type, and by the end of the lease. It looks at running tasks alone, of the named types if there are any, and at no more than 10,000 of them.")), func(ctx context.Context, in *struct {
		Worker []string `query:"worker,explode" maxItems:"1000" doc:"of this worker; can be repeated"`
		Type   []string `query:"type,explode" maxItems:"100" doc:"of tasks of this type; can be repeated"`
		Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"the most that are listed"`
	}) (*executionList, error) {
		for _, id := range in.Worker {
			if err := input.WorkerID("worker", id); err != nil {
				return nil, err
			}
		}
		for _, typ := range in.Type {
			if err := input.Name("type", typ); err != nil {
				return nil, err
			}
		}
		held, more, err := s.store.Tasks.Held(ctx, in.Worker, in.Type, in.Limit)
		out := &executionList{}
		out.Body.Executions, out.Body.Complete = []view.Execution{}, !more
		for i := range held {
			out.Body.Executions = append(out.Body.Executions, view.ExecutionOf(&held[i]))
		}
		return out, err
	})
}
