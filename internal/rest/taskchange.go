package rest

import (
	"context"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/taskchange"
	"github.com/mscheduler/mscheduler/model"
)

// remarked is the body of a command on a task.
type remarked struct {
	Remark string `json:"remark,omitzero" doc:"why, for those who look at the task later"`
}

// retried is the body of a retry.
type retried struct {
	Remark string `json:"remark,omitzero" doc:"why, for those who look at the task later"`
	Step   string `json:"step,omitzero" doc:"the step to begin from: earlier steps keep their values (default: from the start)"`
}

func (s *API) addChanges() {
	for _, c := range []struct {
		verb, summary, more string
		do                  func(ctx context.Context, id, remark string) (*model.Task, error)
	}{
		{"cancel", "Cancel a task that has not ended", "An execution is asked to stop: the task is Cancelled when it has, or when its lease lapses.", s.producer.Cancel},
		{"resolve", "Decide that a Pending task is done", "It becomes ManuallyProcessed.", s.producer.Resolve},
	} {
		add(s, rule{access.Operator, tenantOfPath}, op(c.verb+"-task", http.MethodPost, taskAt+"/"+c.verb, c.summary,
			c.more), func(ctx context.Context, in *struct {
			TaskPath
			Body *body[remarked]
		}) (*taskAnswer, error) {
			return answerTask(c.do(ctx, in.id(), said(in.Body).Remark))
		})
	}
	add(s, rule{access.Operator, tenantOfPath}, op("update-task", http.MethodPatch, taskAt, "Change a task that has not ended",
		"What the body does not say stays as it is. A running execution keeps the arguments and options of its claim. If-Match names the rev that was read: the ETag of the task."), s.update)
	add(s, rule{access.Operator, tenantOfPath}, op("retry-task", http.MethodPost, taskAt+"/retry", "Begin a new life of a task that has ended", ""), func(ctx context.Context, in *struct {
		TaskPath
		Body *body[retried]
	}) (*taskAnswer, error) {
		return answerTask(s.retry(ctx, in.id(), said(in.Body)))
	})
	add(s, rule{access.Operator, tenantOfPath}, op("release-task", http.MethodPost, taskAt+"/release", "Release a task that was sent as held", ""), func(ctx context.Context, in *struct{ TaskPath }) (*taskAnswer, error) {
		return answerTask(s.producer.Release(ctx, in.id()))
	})
	add(s, rule{access.Operator, tenantOfPath}, op("redeliver-task", http.MethodPost, taskAt+"/redeliver", "Deliver the callback of an ended task again",
		"Answers with the task that delivers it."), s.redeliver)
}

func (s *API) update(ctx context.Context, in *struct {
	TaskPath
	IfMatch
	Body body[form.Task]
}) (*taskAnswer, error) {
	rev, err := in.version()
	if err != nil {
		return nil, err
	}
	if in.Body.form.Type != nil {
		return nil, input.Invalid("body.type", "cannot be changed: it is part of the task's id")
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	t, err := taskchange.Update(ctx, s.producer, in.id(), in.Body.form, rev, now)
	return answerTask(t, input.Under("body", input.Renamed(err, form.OptionField)))
}

func (s *API) retry(ctx context.Context, id string, f *retried) (*model.Task, error) {
	if f.Step != "" {
		return s.producer.RetryFrom(ctx, id, f.Step, f.Remark)
	}
	return s.producer.Retry(ctx, id, f.Remark)
}

func (s *API) redeliver(ctx context.Context, in *struct {
	TaskPath
	Generation int64 `query:"generation" minimum:"0" doc:"a past life; 0 = the newest"`
}) (*sentAnswer, error) {
	if err := s.mayRead(ctx, grantOf(ctx), in.id(), in.Generation); err != nil {
		return nil, err
	}
	delivery, err := s.admin.Redeliver(ctx, in.id(), in.Generation)
	return &sentAnswer{Status: http.StatusOK, Body: sentOf(delivery)}, err
}
