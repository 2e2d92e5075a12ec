package rest

import (
	"context"
	"net/http"
	"time"

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

// addHealth adds what anybody may ask: whether the process runs, and whether it can serve.
func (s *API) addHealth() {
	answer := func(w http.ResponseWriter, status int, text string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text + "\n"))
	}
	s.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	s.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		err := s.store.Ready(ctx) // the schema, once
		if err == nil {
			_, err = s.store.ServerTime(ctx)
		}
		if err != nil {
			s.config.Logger.Warn().Err(err).Msg("not ready")
			answer(w, http.StatusServiceUnavailable, "the database does not answer, or its schema is not ready")
			return
		}
		answer(w, http.StatusOK, "ok")
	})
}

// readyTimeout is how long a database may take to say that it is there.
const readyTimeout = 2 * time.Second
