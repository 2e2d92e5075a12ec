package rest

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

type workerList struct {
	Body struct {
		Workers []view.Worker `json:"workers"`
		Next    string        `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

// WorkerPath names a worker.
type WorkerPath struct {
	Worker string `path:"worker" maxLength:"200" doc:"id of the worker, percent-encoded where it has a slash"`
}

const workerAt = "/workers/{worker}"

// draining is the body of a request to drain a worker.
type draining struct {
	Stop bool   `json:"stop,omitzero" doc:"stop it when it holds nothing any more"`
	Note string `json:"note,omitzero" doc:"the reason, shown to other operators"`
}

func (s *API) addWorkers() {
	add(s, rule{access.Viewer, everyTenant}, op("list-workers", http.MethodGet, "/workers", "List workers that were heard of within a day, sorted by id", ""), func(ctx context.Context, in *struct {
		State string `query:"state" enum:"alive,dead" doc:"alive: heard of within the last 90 seconds"`
		Page
	}) (*workerList, error) {
		from, err := placeOf(in.Token)
		if err != nil {
			return nil, err
		}
		now, err := s.store.ServerTime(ctx)
		if err != nil {
			return nil, err
		}
		var alive *bool
		if in.State != "" {
			alive = new(in.State == "alive")
		}
		workers, next, err := s.store.Workers.Page(ctx, from.id, in.Limit, alive, now)
		out := &workerList{}
		out.Body.Next = after(next)
		out.Body.Workers = []view.Worker{}
		for i := range workers {
			out.Body.Workers = append(out.Body.Workers, view.WorkerOf(&workers[i], now))
		}
		return out, err
	})
	add(s, rule{access.Viewer, everyTenant}, op("get-worker", http.MethodGet, workerAt, "Get a worker that was heard of within a day", ""), func(ctx context.Context, in *struct{ WorkerPath }) (*answer[view.Worker], error) {
		return s.onWorker(ctx, func(time.Time) (*store.Worker, error) { return s.store.Workers.Known(ctx, in.Worker) })
	})
	change := rule{access.Operator, everyTenant}
	add(s, change, op("drain-worker", http.MethodPost, workerAt+"/drain", "Drain a worker: it claims nothing more and finishes what it holds",
		"The worker hears of it with its next heartbeat, within 30 seconds. With stop it then stops: `mscheduler work` exits, `serve` and `dev` go on without it until somebody restarts them. The request is for one process: a worker that starts again under the id works. "+
			"A worker that is dead, or that refuses such requests, is a 409. Workers that pull refuse, too: they stop by fetching no more."), func(ctx context.Context, in *struct {
		WorkerPath
		Body *body[draining]
	}) (*answer[view.Worker], error) {
		wish := said(in.Body)
		if err := input.Note(wish.Note); err != nil {
			return nil, input.Under("body", err)
		}
		return s.onWorker(ctx, func(now time.Time) (*store.Worker, error) {
			return s.store.Workers.AskToDrain(ctx, in.Worker, store.Drain{Stop: wish.Stop, Note: wish.Note, By: byOf(ctx)}, now)
		})
	})
	add(s, change, op("resume-worker", http.MethodPost, workerAt+"/resume", "Resume a worker that is drained", "It claims tasks again from its next heartbeat on. Where nobody has asked it to drain, nothing changes."), func(ctx context.Context, in *struct{ WorkerPath }) (*answer[view.Worker], error) {
		return s.onWorker(ctx, func(now time.Time) (*store.Worker, error) { return s.store.Workers.Undrain(ctx, in.Worker, now) })
	})
}

// byOf is who asks, for people.
func byOf(ctx context.Context) string {
	g := grantOf(ctx)
	return cmp.Or(g.Name, g.Who())
}

// onWorker answers with a worker as it is, or as a change has left it.
func (s *API) onWorker(ctx context.Context, change func(now time.Time) (*store.Worker, error)) (*answer[view.Worker], error) {
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	w, err := change(now)
	if err != nil {
		return nil, err
	}
	return answered(view.WorkerOf(w, now), nil)
}
