package integration

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// pointed is an error of which a nil pointer has no text.
type pointed struct{ text string }

func (e *pointed) Error() string { return e.text }

// loud is an error whose text panics, with itself.
type loud struct{}

func (e loud) Error() string { panic(e) }

// tangled is an error that cannot be searched.
type tangled struct{ error }

func (e tangled) Unwrap() error { panic("nothing in it") }

// hollow is a result that cannot be encoded.
type hollow struct{ n *int }

func (h hollow) MarshalJSON() ([]byte, error) { return []byte{byte(*h.n)}, nil }

func TestWhatPanicsInErrorsAndResultsIsAnErrorWithItsStack(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		var none *pointed
		for name, c := range map[string]struct {
			result any
			err    error
			in     string // of the stack
		}{
			"a nil pointer as an error":        {nil, none, "(*pointed)"},
			"a nil pointer that is fatal":      {nil, consumer.Fatal(none), "(*pointed)"},
			"a nil pointer that is not here":   {nil, consumer.NotHere(none), "(*pointed)"},
			"a nil pointer of a time out":      {nil, consumer.TimedOut(none), "(*pointed)"},
			"an error whose text panics":       {nil, loud{}, "loud"},
			"an error that cannot be searched": {nil, tangled{errNo}, "tangled"},
			"a fatal one that cannot be":       {nil, consumer.Fatal(tangled{errNo}), "tangled"},
			"a result that cannot be encoded":  {hollow{}, nil, "hollow"},
		} {
			e.part(t, name, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				typ := model.NewType[int, any]("panics")
				sent, err := producer.Send(t.Context(), a.p, typ, 1, retries(0, 0))
				require.NoError(t, err)
				w, err := consumer.New(consumer.Config{Database: a.db})
				require.NoError(t, err)
				require.NoError(t, consumer.Handle(w, typ, func(context.Context, *consumer.Task[int]) (any, error) { return c.result, c.err }))
				report := mstest.Drain(t, w)
				require.Equal(t, 1, report.Errors)
				task := a.get(sent.ID)
				require.Equal(t, model.StatusFailure, task.Status)
				require.Equal(t, failkind.Panic, task.WorkerStates[0].FailKind, task.WorkerStates[0].FailReason)
				require.Contains(t, task.WorkerStates[0].FailReason, "integration."+c.in)
			})
		}
	})
}

func TestAPanicWhoseValuePanicsIsAnErrorToo(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.send(1, retries(0, 0))[0]
		require.Equal(t, 1, a.drain(func(context.Context, *consumer.Task[int]) (int, error) { panic(loud{}) }).Errors)
		w := a.get(id).WorkerStates[0]
		require.Equal(t, failkind.Panic, w.FailKind)
		require.Contains(t, w.FailReason, "integration.loud")
	})
}

func TestAHandlerThatEndsItsGoroutineIsAnErrorAndFreesItsSlot(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		bad := a.sendKey("bad", 1, producer.Priority(9), retries(1, 0))
		good := a.sendKey("good", 2)
		w := a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args == 1 {
				runtime.Goexit()
			}
			return double(ctx, task)
		}, narrow(1))
		a.awaitStatus(good.ID, model.StatusSuccess)
		task := a.awaitStatus(bad.ID, model.StatusFailure)
		require.Equal(t, 2, task.ErrorCount, "the first try and a retry")
		for _, w := range task.WorkerStates {
			require.Equal(t, failkind.Panic, w.FailKind)
			require.Contains(t, w.FailReason, "the handler ended its goroutine")
			require.Contains(t, w.FailReason, "integration.TestAHandlerThatEndsItsGoroutine", "its stack")
		}
		require.NoError(t, w.stop())
	})
}

func TestADrainEndsWhereAHandlerEndsItsGoroutine(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.send(3, retries(1, 0))
		report := a.drain(func(context.Context, *consumer.Task[int]) (int, error) {
			runtime.Goexit()
			return 0, errors.New("it went on")
		}, mstest.SkipTime())
		require.Equal(t, 6, report.Executions)
		require.Equal(t, 6, report.Errors)
		require.Equal(t, 3, report.Failed)
	})
}
