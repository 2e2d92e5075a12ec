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
		Next    string        `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

func (s *API) addWorkers() {
	add(s, rule{access.Viewer, everyTenant}, huma.Operation{
		OperationID: "list-workers", Method: http.MethodGet, Path: "/workers", Tags: []string{"workers"}, Summary: "List workers that were heard of within a day, sorted by id",
	}, func(ctx context.Context, in *struct{ Page }) (*workerList, error) {
		from, err := placeOf(in.Token)
		if err != nil {
			return nil, err
		}
		workers, next, err := s.store.Workers.Page(ctx, from.id, in.Limit)
		if err != nil {
			return nil, err
		}
		now, err := s.store.ServerTime(ctx)
		out := &workerList{}
		out.Body.Next = after(next)
		out.Body.Workers = []view.Worker{}
		for i := range workers {
			out.Body.Workers = append(out.Body.Workers, view.WorkerOf(&workers[i], now))
		}
		return out, err
	})
}
