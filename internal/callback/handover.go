package callback

import (
	"context"
	"errors"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Handover is the outcome kind [lifecycle.OutcomeCallback]: it makes the task that delivers.
// Every process does it, whether it delivers or not.
type Handover struct {
	Store *store.Store
	// Made hears that deliveries were made, by this process or before; nil = nobody does.
	Made func()
}

// Name implements [outcome.Kind].
func (Handover) Name() string { return lifecycle.OutcomeCallback }

// Carry implements [outcome.Kind]. A delivery that is there already was made by somebody
// who could not say so.
func (h Handover) Carry(ctx context.Context, entries []outcome.Entry) []error {
	now := h.Store.Clock.Now()
	tasks := make([]*model.Task, len(entries))
	for i, e := range entries {
		tasks[i] = lifecycle.NewTask(lifecycle.Delivery(e.Life.Task), now)
	}
	_, err := h.Store.Tasks.Insert(ctx, tasks)
	errs := make([]error, len(entries))
	var some *store.InsertError
	for i := range errs {
		switch {
		case errors.As(err, &some):
			errs[i] = some.Refused[i]
		default:
			errs[i] = err
		}
	}
	if err == nil && h.Made != nil {
		h.Made()
	}
	return errs
}
