package consumer

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
)

// Step runs a part of a handler once per task. It saves the value of fn, fenced by the open
// execution, before it returns. When a later execution of the task reaches the step, after an
// error, a lapse or a restart, it gets the saved value, and fn is not called. A handler that
// consists of steps therefore resumes where the last execution stopped. If a task needs several
// workers, each worker has its own steps.
//
// ctx is the handler's context or derived from it. name, 1 to 100 of [a-zA-Z0-9._-], must be
// unique in the handler: using it twice in one call is an error. If fn returns an error, the
// step is not saved and may be attempted again. The value is a JSON value of at most 1 MiB; a
// task has at most 1,000 steps with 4 MiB in total. Step returns the value as it will be read
// from the database, so that the first and later executions see the same value.
//
// fn may still run twice if the process dies after fn took effect and before the value is
// saved. Pass an idempotency key to other systems, made of the task's id and the name.
//
// The error is the error of fn, [model.ErrFenced] if the execution no longer holds the task,
// the cause of ctx if it ended, or a fatal error (see [Fatal]) if the value cannot be saved. If
// a saved value does not decode into T, the worker releases the task without using a retry, as
// with arguments that do not decode. Step is refused in a transaction, because the transaction
// may abort after the step was saved: call Step outside and run the transaction in fn.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var out T
	e, err := stepper(ctx, name)
	if err != nil {
		return out, err
	}
	raw, err := e.step(ctx, name, func(ctx context.Context) (bson.RawValue, error) {
		v, err := fn(ctx)
		if err != nil {
			return bson.RawValue{}, err
		}
		return encodeStep[T](name, v)
	})
	if err != nil {
		return out, err
	}
	if err := codec.DecodeValue(raw, &out); err != nil {
		var zero T
		return zero, &undecodableError{what: "the value of step " + name, err: err}
	}
	return out, nil
}

// stepper is the execution whose handler has the context.
func stepper(ctx context.Context, name string) (*Execution, error) {
	if err := input.StepName("step", name); err != nil {
		return nil, err
	}
	e, _ := ctx.Value(executionKey{}).(*Execution)
	switch {
	case e == nil:
		return nil, input.Invalid("ctx", "of step %s does not come from a handler; want the context that the handler was called with", name)
	case store.InTransaction(ctx):
		return nil, input.Invalid("ctx", "of step %s carries a transaction, which may abort after the step was saved; call Step outside and run the transaction in its function", name)
	default:
		return e, nil
	}
}

// executionKey is under what a handler's context has its *Execution.
type executionKey struct{}

// encodeStep makes a step's value a stored one, and makes sure that it can be read again.
func encodeStep[T any](name string, v T) (bson.RawValue, error) {
	raw, err := codec.EncodeValue("step "+name, v, input.MaxStepBytes)
	if err != nil {
		return raw, Fatal(err)
	}
	var again T
	if err := codec.DecodeValue(raw, &again); err != nil {
		return raw, Fatal(input.Invalid("step "+name, "returned a value that does not decode into its type: %v", err))
	}
	return raw, nil
}

// step takes the saved value, or makes one and saves it.
func (e *Execution) step(ctx context.Context, name string, fn func(context.Context) (bson.RawValue, error)) (value bson.RawValue, err error) {
	saved, err := e.steps.Take(name, func() []model.Step { return lifecycle.StepsOf(e.hold.task, e.consumer.cfg.WorkerID) })
	if err != nil {
		return value, err
	}
	if saved != nil {
		return saved.Value, nil
	}
	kept := false
	defer func() {
		if !kept { // also by a panic
			e.steps.Drop(name)
		}
	}()
	if err := e.steps.Room(name); err != nil {
		return value, Fatal(err)
	}
	if ctx.Err() != nil {
		return value, fmt.Errorf("step %s did not start: %w", name, context.Cause(ctx))
	}
	if e.consumer.tracer.On() {
		var span trace.Span
		ctx, span = e.consumer.stepSpan(ctx, name)
		defer func() {
			if !kept && err == nil {
				tracing.Fail(span, "panic", "the step did not return")
			}
			tracing.End(span, err)
		}()
	}
	value, err = fn(ctx)
	if err != nil {
		return value, err
	}
	s := model.Step{
		Name: name, WorkerID: e.consumer.cfg.WorkerID, Value: value,
		At: clock.Millis(e.consumer.store.Clock.Now()), Attempt: e.Attempt,
	}
	if err := e.steps.Enter(s, lifecycle.Wanted(e.hold.task)); err != nil {
		return value, Fatal(err)
	}
	there, err := e.consumer.steps.Save(ctx, hold{e.hold, e.consumer}, s)
	if err != nil {
		return value, fmt.Errorf("saving step %s of task %s: %w", name, e.TaskID, err)
	}
	kept = true
	return there.Value, nil
}
