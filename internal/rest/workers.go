package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/view"
)

type workerList struct {
	Body struct {
		Workers []view.Worker `json:"workers"`
	}
}

func (s *API) addWorkers() {
	add(s, rule{access.Viewer, everyTenant}, huma.Operation{
		OperationID: "list-workers", Method: http.MethodGet, Path: "/workers", Tags: []string{"workers"}, Summary: "List workers that were heard of within a day",
	}, func(ctx context.Context, _ *struct{}) (*workerList, error) {
		workers, err := s.store.Workers.List(ctx)
		if err != nil {
			return nil, err
		}
		now, err := s.store.ServerTime(ctx)
		out := &workerList{}
		out.Body.Workers = []view.Worker{}
		for i := range workers {
			out.Body.Workers = append(out.Body.Workers, view.WorkerOf(&workers[i], now))
		}
		return out, err
	})
}
