package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

type completing struct {
	Handle     string     `json:"handle,omitzero" doc:"of the fetch"`
	Result     form.Value `json:"result,omitzero" doc:"any JSON value"`
	NoCallback bool       `json:"no_callback,omitzero" doc:"send no callback for this success"`
}

type failing struct {
	Handle     string         `json:"handle,omitzero" doc:"of the fetch"`
	Reason     string         `json:"reason,omitzero" doc:"the error's text"`
	Fatal      bool           `json:"fatal,omitzero" doc:"no retry can help; if the task ends as Failure and is a step of a plan, its plan is ERROR until a person resets it"`
	PlanError  bool           `json:"plan_error,omitzero" doc:"the plan of the step can never be processed: the task ends as after fatal, and its plan is ERROR until a person resets it"`
	RetryAfter *form.Duration `json:"retry_after,omitzero" doc:"when to retry, in place of the task's own delay"`
}

type returning struct {
	Handle string         `json:"handle,omitzero" doc:"of the fetch"`
	Reason string         `json:"reason,omitzero" doc:"why the worker gives the task back"`
	After  *form.Duration `json:"after,omitzero" doc:"when the task is due again; defaults to at once"`
}

// end is a way to end an execution.
type end interface {
	handle() string
	do(ctx context.Context, s *API) (*model.Task, error)
}

func (f *completing) handle() string { return f.Handle }
func (f *failing) handle() string    { return f.Handle }
func (f *returning) handle() string  { return f.Handle }

func (f *completing) do(ctx context.Context, s *API) (*model.Task, error) {
	var opts []producer.CompleteOption
	if f.NoCallback {
		opts = append(opts, producer.WithoutCallback)
	}
	var result any
	if len(f.Result) > 0 {
		result = json.RawMessage(f.Result)
	}
	return s.puller.Complete(ctx, f.Handle, result, opts...)
}

func (f *failing) do(ctx context.Context, s *API) (*model.Task, error) {
	after := time.Duration(0)
	if f.RetryAfter != nil {
		after = time.Duration(*f.RetryAfter)
	}
	return s.puller.Fail(ctx, f.Handle, f.Reason, producer.Failure{Fatal: f.Fatal, PlanError: f.PlanError, RetryAfter: after})
}

func (f *returning) do(ctx context.Context, s *API) (*model.Task, error) {
	if f.After != nil {
		return s.room.Snooze(ctx, f.Handle, f.Reason, time.Duration(*f.After))
	}
	return s.puller.GiveBack(ctx, f.Handle, f.Reason)
}

// ends is the body of many ends.
type ends struct {
	Complete []completing `json:"complete,omitzero" doc:"executions that succeeded"`
	Fail     []failing    `json:"fail,omitzero" doc:"executions that failed"`
	GiveBack []returning  `json:"give_back,omitzero" doc:"tasks to give back"`
}

type endsAnswer struct {
	Body struct {
		Complete []endedItem `json:"complete,omitempty" doc:"one for each of the request, in their order; so are the others"`
		Fail     []endedItem `json:"fail,omitempty"`
		GiveBack []endedItem `json:"give_back,omitempty"`
	}
}

// endedItem is what became of one of many ends.
type endedItem struct {
	Handle string       `json:"handle"`
	ID     string       `json:"id,omitempty"`
	Status model.Status `json:"status,omitempty" doc:"of the task now"`
	Lost   bool         `json:"lost,omitempty" doc:"the execution no longer held the task: the end does not count"`
	Error  string       `json:"error,omitempty" doc:"why the end was not stored; the others were"`
}

func (s *API) addEnds() {
	work := rule{access.Worker, tenantOfHandle}
	add(s, work, op("complete", http.MethodPost, "/pull/complete", "End an execution as a success", "A repeated request of the execution that ended the task answers in the same way."), func(ctx context.Context, in *struct{ Body body[completing] }) (*taskAnswer, error) {
		return s.ended(ctx, in.Body.form)
	})
	add(s, work, op("fail", http.MethodPost, "/pull/fail", "End an execution as an error", "The task is retried, or ends, as its options say."), func(ctx context.Context, in *struct{ Body body[failing] }) (*taskAnswer, error) {
		return s.ended(ctx, in.Body.form)
	})
	add(s, work, op("give-back", http.MethodPost, "/pull/give-back", "Give a task back without using a retry", "The task is due again at once, or after a time."), func(ctx context.Context, in *struct{ Body body[returning] }) (*taskAnswer, error) {
		return s.ended(ctx, in.Body.form)
	})
	many := op("ends", http.MethodPost, "/pull/ends", "End up to 1,000 executions", "Each has an answer of its own. What cannot be ended keeps none of the others from it.")
	many.OperationID = "end-many"
	add(s, work, many, s.endMany)
}

// ended ends an execution of a task that the token sees.
func (s *API) ended(ctx context.Context, e end) (*taskAnswer, error) {
	if err := s.holds(ctx, e.handle()); err != nil {
		return nil, err
	}
	t, err := e.do(ctx, s)
	return answerTask(t, input.Under("body", err))
}

// holds says whether the token sees the task of a handle.
func (*API) holds(ctx context.Context, handle string) error {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return input.Under("body", err)
	}
	if !ofTenant(ctx, h.TaskID) {
		return huma.Error404NotFound("not found")
	}
	return nil
}

// endsAtOnce bounds the ends of one request that are on their way. Those that come together are written
// together.
const endsAtOnce = 64

func (s *API) endMany(ctx context.Context, in *struct{ Body body[ends] }) (*endsAnswer, error) {
	f := in.Body.form
	if n := len(f.Complete) + len(f.Fail) + len(f.GiveBack); n < 1 || n > maxBatch {
		return nil, input.Invalid("body", "has %d ends; want 1 to %d", n, maxBatch)
	}
	var bad error
	item := func(field string, i int, e end) {
		if _, err := input.ParseHandle(e.handle()); err != nil && bad == nil {
			bad = input.Invalid(fmt.Sprintf("body.%s[%d].handle", field, i), "is not an execution handle")
		}
	}
	for i := range f.Complete { // all of them before the first end
		item("complete", i, &f.Complete[i])
	}
	for i := range f.Fail {
		item("fail", i, &f.Fail[i])
	}
	for i := range f.GiveBack {
		item("give_back", i, &f.GiveBack[i])
	}
	if bad != nil {
		return nil, bad
	}
	out := &endsAnswer{}
	out.Body.Complete, out.Body.Fail, out.Body.GiveBack = make([]endedItem, len(f.Complete)), make([]endedItem, len(f.Fail)), make([]endedItem, len(f.GiveBack))
	var all errgroup.Group
	all.SetLimit(endsAtOnce)
	begin := func(e end, to *endedItem) {
		all.Go(func() error {
			*to = s.endOne(ctx, e)
			return nil
		})
	}
	for i := range f.Complete {
		begin(&f.Complete[i], &out.Body.Complete[i])
	}
	for i := range f.Fail {
		begin(&f.Fail[i], &out.Body.Fail[i])
	}
	for i := range f.GiveBack {
		begin(&f.GiveBack[i], &out.Body.GiveBack[i])
	}
	return out, all.Wait()
}

func (s *API) endOne(ctx context.Context, e end) endedItem {
	out := endedItem{Handle: e.handle()}
	if s.holds(ctx, e.handle()) != nil {
		out.Lost = true
		return out
	}
	t, err := e.do(ctx, s)
	switch kind := failure.Of(err); {
	case err == nil:
		out.ID, out.Status = t.ID, t.Status
	case kind == failure.Refused, kind == failure.NotFound:
		out.Lost = true
	case kind == failure.Invalid:
		out.Error = err.Error()
	default:
		out.Error = s.problem(err).Error()
	}
	return out
}

// keeping is the body of a report of progress.
type keeping struct {
	Handle     string     `json:"handle,omitzero" doc:"of the fetch"`
	Percent    *float64   `json:"percent,omitzero" doc:"how far the work is, 0 to 100; for people"`
	Message    string     `json:"message,omitzero" doc:"how far the work is, at most 4 KiB; for people"`
	Checkpoint form.Value `json:"checkpoint,omitzero" doc:"what the next execution of the task is to know, at most 1 MiB"`
}

type parking struct {
	Handle string         `json:"handle,omitzero" doc:"of the fetch"`
	For    *form.Duration `json:"for,omitzero" doc:"how long somebody may take to complete or fail the execution"`
}

func (s *API) addKeeps() {
	work := rule{access.Worker, tenantOfHandle}
	progress := op("progress", http.MethodPost, "/pull/progress", "Report the progress of an execution, or save a checkpoint", "A checkpoint replaces the one before. It comes with the task when it is fetched again.")
	progress.DefaultStatus = http.StatusNoContent
	add(s, work, progress, func(ctx context.Context, in *struct{ Body body[keeping] }) (*struct{}, error) {
		f := in.Body.form
		if err := s.holds(ctx, f.Handle); err != nil {
			return nil, err
		}
		reports := f.Percent != nil || f.Message != ""
		if !reports && len(f.Checkpoint) == 0 {
			return nil, input.Invalid("body.percent", "or message or checkpoint is required")
		}
		percent := 0.0
		if f.Percent != nil {
			percent = *f.Percent
		}
		if err := input.Progress(percent, f.Message); err != nil { // before the checkpoint is saved
			return nil, input.Under("body", err)
		}
		if len(f.Checkpoint) > 0 {
			if err := s.room.Checkpoint(ctx, f.Handle, json.RawMessage(f.Checkpoint)); err != nil {
				return nil, input.Under("body", err)
			}
		}
		if !reports {
			return nil, nil
		}
		return nil, input.Under("body", s.room.Progress(ctx, f.Handle, percent, f.Message))
	})
	add(s, work, op("park", http.MethodPost, "/pull/park", "Let somebody else complete an execution",
		"The execution needs no pings any more. Who has its handle completes or fails it, such as a person. If nobody does in time, it ends as a timeout."), func(ctx context.Context, in *struct{ Body body[parking] }) (*taskAnswer, error) {
		f := in.Body.form
		if err := s.holds(ctx, f.Handle); err != nil {
			return nil, err
		}
		if f.For == nil {
			return nil, input.Invalid("body.for", "is required")
		}
		t, err := s.room.Park(ctx, f.Handle, time.Duration(*f.For))
		return answerTask(t, input.Under("body", err))
	})
}
