// Package facts reads what an explanation of a task needs (package explain): the task, the pauses, the
// settings of its type, the permits in use and the live workers. All reads are by key or bounded.
package facts

import (
	"context"
	"errors"
	"slices"

	"github.com/mscheduler/mscheduler/internal/explain"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// mostPermits is how many permits of a limit_key an explanation names.
const mostPermits = 1000

// Explained is the explanation of a task as JSON.
type Explained struct {
	ID     string       `json:"id"`
	Status model.Status `json:"status"`
	explain.Report
}

// Explain explains the newest life of a task to a reader who sees the things of those tenants; nil = of all.
func Explain(ctx context.Context, s *store.Store, id string, sees func(tenant string) bool) (Explained, error) {
	t, err := s.History.Life(ctx, id, 0)
	if err != nil {
		return Explained{}, err
	}
	f, err := of(ctx, s, t)
	if err != nil {
		return Explained{}, err
	}
	f.Sees = sees
	return Explained{t.ID, t.Status, explain.Explain(f)}, nil
}

func of(ctx context.Context, s *store.Store, t *model.Task) (explain.Facts, error) {
	f := explain.Facts{Task: t}
	var err error
	if f.Now, err = s.ServerTime(ctx); err != nil {
		return f, err
	}
	control, err := s.Control.Read(ctx)
	if err != nil {
		return f, err
	}
	f.PausedAll, f.PausedType = control.PausedAll, control.Paused(t.Type)
	if f.Type, err = Type(ctx, s, t.Type); err != nil {
		return f, err
	}
	if f.Type != nil && f.Type.MaxRunning > 0 {
		if f.OfType, err = s.Permits.Holders(ctx, store.LimitOf{Type: t.Type}, f.Type.MaxRunning); err != nil {
			return f, err
		}
	}
	if k := t.Options.LimitKey; k != "" {
		if f.OfKey, err = s.Permits.Holders(ctx, store.LimitOf{Type: t.Type, Key: k}, mostPermits); err != nil {
			return f, err
		}
	}
	if t.Status.Ended() {
		if f.Delivery, err = s.History.Life(ctx, lifecycle.DeliveryID(t), 0); err != nil && !errors.Is(err, store.ErrNotFound) {
			return f, err
		}
	}
	workers, err := s.Workers.List(ctx)
	if err != nil {
		return f, err
	}
	for i := range workers {
		if w := &workers[i]; w.Alive(f.Now) {
			f.Workers = append(f.Workers, workerFor(w, t.Type))
		}
	}
	return f, nil
}

// workerFor is a worker as a fact about a task of the type: one that serves the type names it.
func workerFor(w *store.Worker, typ string) explain.Worker {
	out := explain.Worker{
		ID: w.ID, Types: w.Types, Only: w.Only, Concurrency: w.Concurrency, Running: w.Running,
		Draining: w.Draining, Resumes: w.Draining && w.Drain == nil, Pulls: w.Stream == store.Pulling,
	}
	if w.Serves(typ) && !slices.Contains(out.Types, typ) { // it pulls by categories
		out.Types = []string{typ}
	}
	return out
}

// Type is what is stored of a type; nil = nothing.
func Type(ctx context.Context, s *store.Store, code string) (*model.TaskType, error) {
	typ, err := s.Types.Get(ctx, code)
	if errors.Is(err, store.ErrNoType) {
		return nil, nil
	}
	return typ, err
}
