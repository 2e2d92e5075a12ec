package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Sent is what became of a send.
type Sent struct {
	ID         string       `json:"id,omitempty"`
	Generation int64        `json:"generation,omitempty" doc:"the life of the key that the send began or found"`
	Created    bool         `json:"created" doc:"the send began this life; otherwise the key already had a task"`
	Status     model.Status `json:"status,omitempty"`
}

func sentOf(s producer.Sent) Sent { return Sent{s.ID, s.Generation, s.Created, s.Status} }

type sentAnswer struct {
	Status int
	Body   Sent
}

// batch is many tasks to send.
type batch struct {
	Tasks []form.Task `json:"tasks,omitzero" doc:"1 to 1,000 tasks"`
}

const maxBatch = 1000

type batchAnswer struct {
	Body struct {
		Tasks []sentItem `json:"tasks" doc:"one for each task of the request, in its order"`
	}
}

// sentItem is what became of one task of a batch.
type sentItem struct {
	Sent
	Error string `json:"error,omitempty" doc:"why it was not stored; the other tasks were"`
}

func (s *API) addSends() {
	add(s, rule{access.Operator, tenantOfBody}, huma.Operation{
		OperationID: "send-task", Method: http.MethodPost, Path: "/tasks", Tags: []string{"tasks"}, Summary: "Send a task",
		Description:   "A key has at most one task. A request that is repeated with the same key, or with the same Idempotency-Key if the body has no key, finds the task that the first one stored.",
		DefaultStatus: http.StatusCreated,
		Responses:     map[string]*huma.Response{"200": {Description: "The key already had a task.", Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/Sent"}}}}},
	}, s.send)
	add(s, rule{access.Operator, tenantOfBody}, op("send-tasks", http.MethodPost, "/tasks/batch", "Send up to 1,000 tasks",
		"All tasks are checked before any is stored. With an Idempotency-Key, tasks without a key get one from it and from their place."), s.sendBatch)
}

// Idempotent is the header of requests that create something.
type Idempotent struct {
	RequestKey string `header:"Idempotency-Key" maxLength:"200" doc:"the same for each repetition of the request; a new one for a new request"`
}

func (s *API) send(ctx context.Context, in *struct {
	Idempotent
	Body body[form.Task]
}) (*sentAnswer, error) {
	item, err := s.item(ctx, in.Body.form, "", in.RequestKey)
	if err != nil {
		return nil, err
	}
	stored, err := s.producer.SendJSON(ctx, item.Type, item.Args, item.Options...)
	if err != nil {
		return nil, err
	}
	out := &sentAnswer{Status: http.StatusCreated, Body: sentOf(stored)}
	if !stored.Created {
		out.Status = http.StatusOK
	}
	return out, nil
}

// item is a task of a request as the producer takes it. place is what precedes its fields in errors.
func (s *API) item(ctx context.Context, t *form.Task, place, idempotencyKey string) (producer.JSONItem, error) {
	keyed := t.Key == nil && idempotencyKey != ""
	if keyed {
		t.Key = &idempotencyKey
	}
	named := ""
	if t.Tenant != nil {
		named = *t.Tenant
	}
	tenant, err := tenantIn(ctx, "body."+place+"tenant", named)
	if err != nil {
		return producer.JSONItem{}, err
	}
	if t.Tenant = &tenant; tenant == "" || tenant == model.NoTenant {
		t.Tenant = nil
	}
	if t.Type == nil {
		return producer.JSONItem{}, input.Invalid("body."+place+"type", "is required")
	}
	if err := input.UserType("body."+place+"type", *t.Type); err != nil {
		return producer.JSONItem{}, err
	}
	if keyed && slices.ContainsFunc(t.Existing, func(e string) bool { return strings.HasPrefix(e, "restart-") }) {
		return producer.JSONItem{}, input.Invalid("body."+place+"existing", "restarts the task; then a request needs a key in the body, since a repetition would run the task again")
	}
	now, err := s.now(ctx)
	if err != nil {
		return producer.JSONItem{}, err
	}
	item, err := t.Item(now)
	if err == nil {
		err = errors.Join((producer.Config{SecretKey: s.config.SecretKey}).Check(item.Type, item.Args, item.Options...), builtin.CheckArgs(item.Type, item.Args), secret.CheckArgs(item.Type, item.Args))
	}
	return item, input.Renamed(err, func(field string) string { return "body." + place + form.OptionField(field) })
}

func (s *API) sendBatch(ctx context.Context, in *struct {
	Idempotent
	Body body[batch]
}) (*batchAnswer, error) {
	tasks := in.Body.form.Tasks
	if n := len(tasks); n < 1 || n > maxBatch {
		return nil, input.Invalid("body.tasks", "has %d tasks; want 1 to %d", n, maxBatch)
	}
	items := make([]producer.JSONItem, len(tasks))
	var bad []error
	for i := range tasks {
		key := in.RequestKey
		if key != "" {
			key = fmt.Sprintf("%s-%d", key, i)
		}
		var err error
		if items[i], err = s.item(ctx, &tasks[i], fmt.Sprintf("tasks[%d].", i), key); err != nil && !errors.Is(err, model.ErrInvalid) {
			return nil, err
		}
		bad = append(bad, err)
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	stored, err := s.producer.SendManyJSON(ctx, items)
	var some *producer.ManyError
	if err != nil && !errors.As(err, &some) {
		return nil, err
	}
	if some != nil && len(some.Failed) == len(items) {
		return nil, some.Failed[0]
	}
	out := &batchAnswer{}
	out.Body.Tasks = make([]sentItem, len(items))
	for i := range items {
		out.Body.Tasks[i].Sent = sentOf(stored[i])
		if some != nil && some.Failed[i] != nil {
			out.Body.Tasks[i].Error = s.problem(some.Failed[i]).Error()
			unfinished(ctx)
		}
	}
	return out, nil
}
