package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func (a *app) taskRedeliver() *cobra.Command {
	return a.changeCommand(taskChange{
		name: "redeliver", done: "redelivered", short: "Deliver the callbacks of ended tasks once more",
		from:      []model.Status{model.StatusCompleted, model.StatusSuccess, model.StatusFailure, model.StatusPending},
		byDefault: []model.Status{model.StatusCompleted},
		long:      "Deliver the callbacks of ended tasks once more: those that nobody took (Completed, which is what a\nfilter means by itself), or those that a receiver has lost. Receivers see the same id and can drop\nwhat they know. One that waits for its retry is tried at once. What is printed are the tasks that\ndeliver. ID@GENERATION is one life of a task, as `task history` names it.",
		apply: func(ctx context.Context, c *connection, id, _ string) (*model.Task, error) {
			s, err := c.admin.Redeliver(ctx, id, 0)
			if life, generation := lifeOf(id); generation != 0 && errors.Is(err, producer.ErrNotFound) {
				s, err = c.admin.Redeliver(ctx, life, generation)
			}
			t := &model.Task{ID: s.ID, Status: s.Status, Generation: s.Generation}
			switch {
			case s.Created:
			case s.Status == model.StatusExecuting:
				t.Remark = ", left alone: it is under way already"
			default:
				t.Remark = ", due now"
			}
			return t, err
		},
		lives: true,
		text:  func(t *model.Task) string { return string(t.Status) + t.Remark },
	})
}

// callbackState is who is told of an ended task, and how far that is, in words; empty
// where nobody is.
type callbackState struct{ target, delivery string }

func (c *connection) callbackState(ctx context.Context, t *model.Task, typ model.Options) (callbackState, error) {
	target, security := lifecycle.CallbackOf(t, typ)
	switch {
	case lifecycle.CallbackSuppressed(t):
		return callbackState{target: "none: its handler, or who completed it, said that nobody is to be told"}, nil
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
		out.delivery = "none: it is not handed over yet, was delivered long ago, or nobody was to be told when the task ended"
		return out, nil
	case err != nil:
		return out, err
	}
	out.delivery = human.TaskID(d.ID) + "  " + deliveryText(d, c.at)
	return out, nil
}

// deliveryText is how far a delivery is.
func deliveryText(d *model.Task, now time.Time) string {
	text := string(d.Status)
	var answer struct{ Status int }
	if err := codec.DecodeValue(d.Result, &answer); err == nil && answer.Status != 0 {
		text += fmt.Sprintf(", the receiver answered %d", answer.Status)
	}
	if d.ErrorCount > 0 && !d.Status.Succeeded() {
		text += fmt.Sprintf(", %s, the last: %s", human.Plural(d.ErrorCount, "error", "errors"), human.OneLine(d.ErrorInfo, 200))
	}
	if !d.DueAt.IsZero() {
		text += ", tried next " + human.When(d.DueAt, now)
	}
	return text
}
