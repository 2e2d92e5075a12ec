package consumer

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// waits makes the worker claim a task with that execution_timeout. Nothing starts by itself.
func (w *world) waits(timeout time.Duration) *execution {
	w.t.Helper()
	w.c.requestStop()
	return w.hold("a", func(t *model.Task) {
		t.Options.ExecutionTimeout, t.Options.Retry = timeout, &model.Retry{Strategy: model.RetryNone}
	})
}

// given is the task of an execution that was given back before it did anything.
func (w *world) given(x *execution) *model.Task {
	w.t.Helper()
	require.NoError(w.t, w.c.ends.Wait(w.t.Context()))
	require.False(w.t, x.begun())
	task := w.get(x.task.ID)
	require.Equal(w.t, model.StatusNew, task.Status)
	require.Zero(w.t, task.ErrorCount)
	state := task.WorkerStates[len(task.WorkerStates)-1]
	require.Equal(w.t, failkind.Released, state.FailKind)
	require.True(w.t, state.Unstarted)
	return task
}

// The deadline counts from the claim. Whoever finds it passed counts an error, so the worker gives
// the task back in the last tenth.
func TestATaskWhoseDeadlineComesBeforeItsTurnIsGivenBackBeforeTheDeadline(t *testing.T) {
	for name, missed := range map[string]func(*world, *execution){
		"while it waits": func(w *world, x *execution) {
			w.pass(900 * time.Millisecond)
			w.guardUntil(func() bool { return x.cause() != nil })
		},
		"when its slot is free": func(w *world, _ *execution) {
			w.pass(900 * time.Millisecond)
			w.c.run(w.c.held.next(w.c.cfg.Clock.Monotonic()))
		},
		"while it gets its slot": func(w *world, x *execution) {
			next := w.c.held.next(w.c.cfg.Clock.Monotonic())
			w.c.leaseEnded(x)
			w.c.run(next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			var lost atomic.Bool
			w.c.cfg.OnEvent = func(e Event) { lost.CompareAndSwap(false, e.Kind == workerevent.LeaseLost) }
			x := w.waits(time.Second)
			missed(w, x)
			task := w.given(x)
			require.Equal(t, "its deadline came before its turn", task.WorkerStates[0].FailReason)
			require.True(t, task.WorkerStates[0].FailTime.Before(task.WorkerStates[0].Deadline))
			require.False(t, task.DueAt.After(w.serverTime()), "another worker may have a slot")
			require.False(t, lost.Load(), "nobody needs to know")
		})
	}
}

// The way of the claim takes longer than the task may. No retry ends that, so the claims become rare.
func TestATaskWhoseClaimTakesLongerThanItsTimeoutIsClaimedMoreAndMoreRarely(t *testing.T) {
	w := newWorld(t, nil)
	w.px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		if command == "update" {
			w.pass(30 * time.Millisecond)
		}
		return answer
	})
	id := put(t, w.c, "a", func(t *model.Task) { t.Options.ExecutionTimeout = 20 * time.Millisecond }).ID
	for i, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		_, err := w.c.fetch(t.Context())
		require.NoError(t, err)
		var task *model.Task
		require.Eventually(t, func() bool {
			task = w.get(id)
			return len(task.WorkerStates) == i+1 && lifecycle.OpenExecutions(task) == 0
		}, testdb.Patience, time.Millisecond)
		state := task.WorkerStates[i]
		require.True(t, state.Unstarted)
		require.Equal(t, rest, task.DueAt.Sub(state.FailTime))
		w.pass(rest)
	}
}

func TestATaskWithAShortTimeoutThatFindsNoSlotIsClaimedOnceASecond(t *testing.T) {
	w := newWorld(t, nil)
	x := w.waits(200 * time.Millisecond)
	w.pass(190 * time.Millisecond)
	w.guardUntil(func() bool { return x.cause() != nil })
	task := w.given(x)
	require.Equal(t, 800*time.Millisecond, task.DueAt.Sub(task.WorkerStates[0].FailTime))
}

func TestTheLineAboutALateResultNamesItsOutcome(t *testing.T) {
	w := newWorld(t, nil)
	log := make(lines, 10)
	w.c.log = zerolog.New(log)
	x := w.hold("a", func(*model.Task) {})
	hold{x, w.c}.Fenced(lifecycle.Success(bson.RawValue{}), "the lease was lost before")
	w.c.stop(x, ErrLeaseLost) // its handler waits for that
	require.Contains(t, inTime(t, log), `"outcome":"success"`)
}

func TestDeadlinesThatPassAreLoggedOnceAMinuteForEachType(t *testing.T) {
	w := newWorld(t, nil)
	log := make(lines, 100)
	w.c.log = zerolog.New(log)
	var told atomic.Int64
	w.c.cfg.OnEvent = func(e Event) {
		if e.Kind == workerevent.LeaseLost {
			told.Add(1)
		}
	}
	tasks := 0
	passes := func() *execution {
		tasks++
		x := w.hold(strconv.Itoa(tasks), func(t *model.Task) {
			t.Options.ExecutionTimeout, t.Options.Retry = time.Second, &model.Retry{Strategy: model.RetryNone}
		})
		w.c.leaseEnded(x)
		require.Eventually(t, func() bool { return len(w.c.held.each()) == 0 }, testdb.Patience, time.Millisecond)
		return x
	}
	const line = "cancelled a handler: the deadline has passed"
	for range 5 {
		passes()
	}
	require.Contains(t, inTime(t, log), line)
	require.Empty(t, log)

	x := passes()
	another := &execution{task: x.task, execID: x.execID, lease: x.lease, h: &handler{typ: "another"}}
	require.NoError(t, another.begin(func(error) {}))
	w.c.leaseEnded(another)
	require.Contains(t, inTime(t, log), line)
	require.Empty(t, log)

	w.pass(time.Minute)
	passes()
	require.Contains(t, inTime(t, log), line)
	require.Empty(t, log)
	require.EqualValues(t, tasks+1, told.Load(), "each is an event")
}
