package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Every write of the store, by what its command looks like.
var writes = []struct {
	name string
	rule proxy.Rule
}{
	{"insert", proxy.Rule{Command: "insert", Collection: "tasks"}},
	{"claim", proxy.Rule{Command: "update", Collection: "tasks", Contains: "claimed_at"}},
	{"take over one", proxy.Rule{Command: "findAndModify", Collection: "tasks", Contains: "claimed_at"}},
	{"leave a lapsed one", proxy.Rule{Command: "update", Collection: "tasks", Contains: "sent no ping"}},
	{"ping", proxy.Rule{Command: "update", Collection: "tasks", Contains: "$max"}},
	{"finish with success", proxy.Rule{Command: "update", Collection: "tasks", Contains: "finished_at"}},
	{"finish with an error", proxy.Rule{Command: "update", Collection: "tasks", Contains: "the first try fails"}},
	{"release", proxy.Rule{Command: "update", Collection: "tasks", Contains: "snoozed"}},
	{"checkpoint", proxy.Rule{Command: "update", Collection: "tasks", Contains: "checkpoint"}},
	{"progress", proxy.Rule{Command: "update", Collection: "tasks", Contains: "half-way"}},
	{"cancel", proxy.Rule{Command: "update", Collection: "tasks", Contains: "not wanted any more"}},
	{"new life", proxy.Rule{Command: "update", Collection: "tasks", Contains: "once more, please"}},
	{"history", proxy.Rule{Command: "update", Collection: "task_history"}},
	{"signal", proxy.Rule{Command: "update", Collection: "signals"}},
	{"signal's number", proxy.Rule{Command: "update", Collection: "control", Contains: "signal"}},
	{"pause", proxy.Rule{Command: "update", Collection: "control", Contains: "$addToSet"}},
	{"resume", proxy.Rule{Command: "update", Collection: "control", Contains: "$pull"}},
	{"clock", proxy.Rule{Command: "findAndModify", Collection: "control"}},
	{"heartbeat", proxy.Rule{Command: "findAndModify", Collection: "workers"}},
	{"seat", proxy.Rule{Command: "update", Collection: "seats"}},
	{"seat given back", proxy.Rule{Command: "delete", Collection: "seats"}},
	{"good-bye", proxy.Rule{Command: "delete", Collection: "workers"}},
}

func TestAWriteCutOffBeforeOrAfterTheServerHasTheSameEnd(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for _, w := range writes {
			for cut, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
				e.part(t, w.name+" "+cut, func(t *testing.T, e Engine) {
					if !e.Streams && (w.name == "permit" || w.name == "permit given back") {
						t.Skip("this engine has no change streams")
					}
					a := newArena(t, e)
					px, away := a.behind()
					rule := w.rule
					rule.Do = action
					trap := px.Set(rule)
					day := &aDay{arena: a, effects: newEffects()}
					var err error
					day.sender, err = producer.New(producer.Config{Database: away})
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, day.sender.Close(context.Background())) })
					day.keeper = admin.New(day.sender)
					day.run(through(away))
					require.Equal(t, 1, trap.Sprung(), "the write never came")
				})
			}
		}
	})
}

// aDay is a day in the life of the product: it makes every kind of write, and ends the
// same whatever was cut off.
type aDay struct {
	*arena
	*effects
	sender *producer.Producer
	keeper *admin.Admin
	sent   int
}

const (
	dayPlain = iota
	dayFails
	dayCheckpoints
	daySnoozes
	dayPings
	dayDies
	dayIsCancelled
)

// dayLease is long, so that a slow engine on a busy machine keeps it, and pinged often, so
// that there are pings.
var dayLease = producer.Lease(2*time.Second, 20*time.Second)

func (d *aDay) one(kind int, opts ...producer.Option) string {
	d.t.Helper()
	var sent producer.Sent
	d.sent++
	key := producer.Key(fmt.Sprint(d.sent))
	d.repeat(func() (err error) {
		sent, err = producer.Send(d.t.Context(), d.sender, chaosWork, kind, append([]producer.Option{dayLease, key}, opts...)...)
		return err
	})
	return sent.ID
}

// repeat does what a caller does who got no answer: the same again. Mostly the driver
// has done so already, but it gives up when its second try meets the broken connections
// of the first.
func (d *aDay) repeat(command func() error) {
	d.t.Helper()
	err := command()
	for range 10 {
		if err != nil && store.Unreachable(err) {
			err = command()
		}
	}
	require.NoError(d.t, err)
}

func (d *aDay) run(way func(*handConfig)) {
	t, ctx := d.t, d.t.Context()
	quick := producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond})
	plain := []string{d.one(dayPlain), d.one(dayPlain), d.one(dayPlain)}
	fails, checkpoints := d.one(dayFails, quick), d.one(dayCheckpoints, quick)
	snoozes, pings, dies := d.one(daySnoozes), d.one(dayPings), d.one(dayDies)
	lapsed := []string{d.one(dayPlain), d.one(dayPlain)}
	notMine := d.one(dayPlain, producer.Workers("ghost"))
	d.abandon(append(lapsed, notMine), "ghost", time.Second)
	d.repeat(func() error { return d.keeper.Pause(ctx, "other.type") })
	d.repeat(func() error { return d.keeper.Resume(ctx, "other.type") })

	h := d.hire("worker", d.handle, way)
	awaitSuccess := append(append([]string{fails, checkpoints, snoozes, pings}, plain...), lapsed...)
	d.awaitSuccess(awaitSuccess)
	d.awaitEach([]string{dies}, "Failure", func(task *model.Task) bool { return task.Status == model.StatusFailure })
	d.awaitEach([]string{notMine}, "given back", func(task *model.Task) bool { return task.Status == model.StatusError })
	cancelled := d.one(dayIsCancelled)
	d.awaitEach([]string{cancelled}, "running", func(task *model.Task) bool { return task.Status == model.StatusExecuting })
	d.repeat(func() error {
		_, err := d.sender.Cancel(ctx, cancelled, "not wanted any more")
		return err
	})
	d.awaitEach([]string{cancelled}, "Cancelled", func(task *model.Task) bool { return task.Status == model.StatusCancelled })
	d.repeat(func() error {
		_, err := d.sender.Retry(ctx, dies, "once more, please")
		if refused := (*model.RefusedError)(nil); errors.As(err, &refused) && d.get(dies).Remark == "once more, please" {
			return nil // the first try was carried out
		}
		return err
	})
	d.awaitSuccess([]string{dies})
	require.NoError(t, h.stop())
	d.judge(awaitSuccess, lapsed, fails, checkpoints, snoozes, notMine, dies)
}

func (d *aDay) judge(success, lapsed []string, fails, checkpoints, snoozes, notMine, dies string) {
	t := d.t
	d.requireOnce(t, success)
	for _, id := range success {
		task := d.get(id)
		errs, lapses := 0, 0
		switch id {
		case fails, checkpoints:
			errs = 1
		case lapsed[0], lapsed[1]:
			lapses = 1
		}
		require.Equal(t, errs, task.ErrorCount, inWords(task))
		require.Equal(t, lapses, task.LapseCount, inWords(task))
		require.Equal(t, errs+lapses+1, task.Attempt, inWords(task))
		require.Zero(t, lifecycle.OpenExecutions(task))
		require.True(t, task.DueAt.IsZero() && task.LapseAt.IsZero(), inWords(task))
		if id == snoozes {
			require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
		}
	}
	task := d.get(notMine)
	require.Equal(t, 1, task.LapseCount)
	require.False(t, task.DueAt.IsZero())
	require.Equal(t, 1, d.count(dies), "its second life succeeded once")
	lives, err := d.db.Collection("task_history").CountDocuments(t.Context(), bson.D{{Key: "task_id", Value: dies}})
	require.NoError(t, err)
	require.EqualValues(t, 1, lives, "the first life was kept once")
	control, err := d.store.Control.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, control.PausedTypes)
	left, err := d.db.Collection("seats").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, left, "seats that nobody gave back")
}

func (d *aDay) handle(ctx context.Context, task *consumer.Task[int]) (int, error) {
	switch task.Args {
	case dayFails:
		if task.Attempt == 1 {
			return 0, errors.New("the first try fails")
		}
	case dayCheckpoints:
		var n int
		if found, err := task.Restore(&n); err != nil || !found {
			if err := errors.Join(err, task.Checkpoint(ctx, 41), task.Progress(ctx, 50, "half-way")); err != nil {
				return 0, consumer.Fatal(err)
			}
			return 0, errors.New("stopped after the checkpoint")
		}
		if n != 41 {
			return 0, consumer.Fatal(fmt.Errorf("the checkpoint is %d", n))
		}
	case daySnoozes:
		if len(d.get(task.TaskID).WorkerStates) == 1 {
			return 0, consumer.Snooze(10 * time.Millisecond)
		}
	case dayPings:
		first := d.get(task.TaskID).WorkerStates[0].PingExpireTime
		poll(ctx, func() bool { return d.get(task.TaskID).WorkerStates[0].PingExpireTime.After(first) })
	case dayDies:
		if len(d.get(task.TaskID).WorkerStates) == 1 && d.get(task.TaskID).Remark == "" {
			return 0, consumer.Fatal(errors.New("hopeless"))
		}
	case dayIsCancelled:
		<-ctx.Done()
		return 0, ctx.Err()
	}
	d.begin(task.TaskID)
	defer d.end(task.TaskID)
	return task.Args, nil
}
