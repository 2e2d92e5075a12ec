package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// toldWork is a type whose successes are told to somebody whom nobody reaches here.
var toldWork = model.NewType[int, int]("statuses.told")

// What each command makes of a task in each status: the status afterwards, or why it is
// refused. The table of docs/reference.md is this one.
var commandTable = []struct {
	status                                          model.Status
	cancel, retry, resolve, release, update, resend string
}{
	{model.StatusWait, "Cancelled", notRetried, notPending, "New", "Wait", "Wait"},
	{model.StatusNew, "Cancelled", notRetried, notPending, "New", "New", "New"},
	{model.StatusExecuting, "Executing", notRetried, notPending, "Executing", "Executing", "Executing"},
	{model.StatusError, "Cancelled", "Error", notPending, "Error", "Error", "New"},
	{model.StatusSuccess, hasEnded, notRetried, notPending, notHeld, notChanged, "New"},
	{model.StatusCompleted, hasEnded, notRetried, notPending, notHeld, notChanged, "New"},
	{model.StatusFailure, hasEnded, "New", notPending, notHeld, notChanged, "New"},
	{model.StatusPending, hasEnded, "New", "ManuallyProcessed", notHeld, notChanged, "New"},
	{model.StatusManuallyProcessed, hasEnded, notRetried, notPending, notHeld, notChanged, "New"},
	{model.StatusCancelled, "Cancelled", "New", notPending, notHeld, notChanged, "New"},
}

const (
	hasEnded   = "only a task that has not ended can be cancelled"
	notRetried = "only Error, Failure, Pending, Cancelled and tasks that wait for a retry can be retried"
	notPending = "only Pending can be resolved"
	notHeld    = "only Wait can be released"
	notChanged = "only a task that has not ended can be changed"
)

func TestEveryCommandOnEveryStatusDoesWhatTheTableSays(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		_, err := a.admin.PutType(t.Context(), model.TaskType{Code: toldWork.Name(), Options: model.Options{
			Callback: &model.Callback{Success: &model.CallbackTarget{URL: "http://receiver.invalid"}},
		}})
		require.NoError(t, err)
		g := newGate()
		defer close(g.open)
		a.hire("w", nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				if err := consumer.Handle(c, toldWork, double); err != nil {
					return err
				}
				return consumer.Handle(c, chaosWork, func(ctx context.Context, task *consumer.Task[int]) (int, error) {
					switch task.Args {
					case argsFails:
						return 0, errNo
					case argsWaits:
						return g.handle(ctx, task)
					default:
						return double(ctx, task)
					}
				})
			}
		})
		for _, row := range commandTable {
			for name, want := range map[string]string{
				"cancel": row.cancel, "retry": row.retry, "resolve": row.resolve,
				"release": row.release, "update": row.update, "send": row.resend,
			} {
				t.Run(string(row.status)+"/"+name, func(t *testing.T) {
					id := a.inStatus(row.status, name)
					before := a.get(id)
					require.Equal(t, row.status, before.Status)
					after, err := a.command(name, id)
					if !lifecycle.Known(model.Status(want)) {
						require.EqualError(t, err, gerunds[name]+" task "+id+": task "+id+" is "+string(row.status)+": "+want)
						require.Equal(t, before.Rev, a.get(id).Rev, "a refusal writes nothing")
						return
					}
					require.NoError(t, err)
					require.Equal(t, model.Status(want), after)
					if name == "resolve" || name == "retry" || name == "cancel" && row.status != model.StatusCancelled {
						require.Equal(t, "the remark", a.get(id).Remark)
					}
				})
			}
		}
	})
}

const (
	argsSucceeds = iota
	argsFails
	argsWaits
)

var gerunds = map[string]string{"cancel": "cancelling", "retry": "retrying", "resolve": "resolving", "release": "releasing", "update": "updating"}

// inStatus brings a task into the status by the public API alone.
func (a *arena) inStatus(s model.Status, key string) string {
	a.t.Helper()
	later := producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour})
	never := producer.Retry(model.Retry{Strategy: model.RetryNone})
	key = string(s) + "-" + key
	var sent producer.Sent
	switch s {
	case model.StatusWait:
		sent = a.sendKey(key, argsSucceeds, producer.Held())
	case model.StatusNew:
		sent = a.sendKey(key, argsSucceeds, producer.In(time.Hour))
	case model.StatusExecuting:
		sent = a.sendKey(key, argsWaits)
	case model.StatusError:
		sent = a.sendKey(key, argsFails, later)
	case model.StatusSuccess:
		sent = a.sendKey(key, argsSucceeds)
	case model.StatusCompleted:
		var err error
		sent, err = producer.Send(a.t.Context(), a.p, toldWork, argsSucceeds, producer.Key(key))
		require.NoError(a.t, err)
	case model.StatusFailure:
		sent = a.sendKey(key, argsFails, never)
	case model.StatusPending, model.StatusManuallyProcessed:
		sent = a.sendKey(key, argsFails, never, producer.NeedManual(true))
	case model.StatusCancelled:
		sent = a.sendKey(key, argsSucceeds, producer.In(time.Hour))
		_, err := a.p.Cancel(a.t.Context(), sent.ID, "")
		require.NoError(a.t, err)
	}
	if s == model.StatusManuallyProcessed {
		a.awaitStatus(sent.ID, model.StatusPending)
		_, err := a.p.Resolve(a.t.Context(), sent.ID, "by hand")
		require.NoError(a.t, err)
	}
	a.awaitStatus(sent.ID, s)
	return sent.ID
}

// command carries out one of the table's and returns the status after it.
func (a *arena) command(name, id string) (model.Status, error) {
	ctx := a.t.Context()
	var task *model.Task
	var err error
	switch name {
	case "cancel":
		task, err = a.p.Cancel(ctx, id, "the remark")
	case "retry":
		task, err = a.p.Retry(ctx, id, "the remark")
	case "resolve":
		task, err = a.p.Resolve(ctx, id, "the remark")
	case "release":
		task, err = a.p.Release(ctx, id)
	case "update":
		task, err = a.p.Update(ctx, id, producer.Priority(7))
	default:
		_, typ, key, bad := input.ParseTaskID(id)
		require.NoError(a.t, bad)
		sent, err := a.p.SendJSON(ctx, typ, []byte("0"), producer.Key(key), producer.In(time.Hour),
			producer.OnExisting(model.RestartFailed, model.RestartSucceeded))
		return sent.Status, err
	}
	if err != nil {
		return "", err
	}
	return task.Status, nil
}

// The time by which somebody had to start it has passed, and no worker of its type lives: a
// worker of another type sees to it, and whoever waits for the task learns of it.
func TestATaskThatNobodyStartsInTimeIsCancelledThoughNoWorkerOfItsTypeLives(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.hire("of another type", nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error { return consumer.Handle(c, toldWork, double) }
		})
		sent := a.sendKey("late", 1, producer.ExpiresIn(time.Second))
		stop := make(chan struct{})
		defer close(stop)
		go a.keepBusy(stop) // upkeep of a process that works comes every few seconds
		_, err := producer.Await(t.Context(), a.p, chaosWork, sent)
		var failed *model.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, model.StatusCancelled, failed.Status)
		require.Contains(t, failed.Info, "expired at ")
		task := a.get(sent.ID)
		require.Empty(t, task.WorkerStates)
		require.False(t, task.FinishedAt.Before(task.Options.ExpiresAt))
	})
}

// keepBusy sends tasks of toldWork, one after the other.
func (a *arena) keepBusy(stop <-chan struct{}) {
	for {
		if _, err := producer.Send(a.t.Context(), a.p, toldWork, 1); err != nil {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond): // the pace of the sends
		}
	}
}
