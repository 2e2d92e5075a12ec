package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func (a *app) taskRedeliver() *cobra.Command {
	return a.changeCommand(taskChange{
		Action: bulk.Redeliver, short: "Deliver the callbacks of ended tasks again",
		long: "Deliver the callbacks of ended tasks again: those that no receiver accepted, and those that a\nreceiver has lost. A filter selects Completed tasks unless --status names others. A receiver sees\nthe same id again, so it can ignore duplicates. A delivery that waits for its retry is due at once.\n\nThe command prints the delivery tasks. ID@GENERATION names one life of a task, as in `task history`.",
		apply: func(ctx context.Context, c *connection, id, _ string) (*model.Task, error) {
			s, err := c.admin.Redeliver(ctx, id, 0)
			if life, generation := lifeOf(id); generation != 0 && errors.Is(err, store.ErrNotFound) {
				s, err = c.admin.Redeliver(ctx, life, generation)
			}
			t := &model.Task{ID: s.ID, Status: s.Status, Generation: s.Generation}
			switch {
			case s.Created:
			case s.Status == model.StatusExecuting:
				t.Remark = ", skipped: the delivery is already running"
			default:
				t.Remark = ", due now"
			}
			return t, err
		},
		text: func(t *model.Task) string { return string(t.Status) + t.Remark },
	})
}

// callbackState describes the receiver of an ended task's callback and the state of the
// delivery; both are empty if the task has no callback.
type callbackState struct{ target, delivery string }

func (c *connection) callbackState(ctx context.Context, t *model.Task, typ model.Options) (callbackState, error) {
	target, security := lifecycle.CallbackOf(t, typ)
	switch {
	case lifecycle.CallbackSuppressed(t):
		return callbackState{target: "none: its handler, or the call that completed it, suppressed it"}, nil
	case target == nil:
		return callbackState{}, nil
	}
	out := callbackState{target: target.String() + ", not signed"}
	if security != nil && security.Type == model.SecurityAKSK {
		out.target = fmt.Sprintf("%v, signed with %v", target, security.Keys)
	}
	d, err := c.store.Tasks.Get(ctx, lifecycle.DeliveryID(t))
	switch {
	case errors.Is(err, store.ErrNotFound):
		out.delivery = "none: not created yet, expired, or no callback was configured when the task ended"
		return out, nil
	case err != nil:
		return out, err
	}
	out.delivery = human.TaskID(d.ID) + "  " + deliveryText(d, c.at)
	return out, nil
}

// deliveryText describes the state of a delivery.
func deliveryText(d *model.Task, now time.Time) string {
	text := string(d.Status)
	var answer struct{ Status int }
	if err := codec.DecodeValue(d.Result, &answer); err == nil && answer.Status != 0 {
		text += fmt.Sprintf(", the receiver answered %d", answer.Status)
	}
	if d.ErrorCount > 0 && !d.Status.Succeeded() {
		text += fmt.Sprintf(", %s, last error: %s", human.Plural(d.ErrorCount, "error", "errors"), human.OneLine(d.ErrorInfo, 200))
	}
	if !d.DueAt.IsZero() {
		text += ", next attempt " + human.When(d.DueAt, now)
	}
	return text
}
