package integration

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// However far ahead the worker claims, which is a matter of how quick it is: the slow ones
// take longer than the others have.
func TestWhatWaitsClaimedForItsTurnExpiresAllTheSame(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const quick, slow, slowFor = 200, 12, 500 * time.Millisecond
		items := make([]producer.Item[int], quick+slow+20)
		for i := range items {
			items[i] = producer.Item[int]{Args: i, Options: []producer.Option{producer.Priority(9)}}
			if i >= quick+slow {
				items[i].Options = []producer.Option{producer.ExpiresIn((slow - 2) * slowFor)}
			} else if i >= quick {
				items[i].Options = []producer.Option{producer.Priority(8)}
			}
		}
		sent, err := producer.SendMany(t.Context(), a.p, chaosWork, items)
		require.NoError(t, err)
		var late atomic.Int64
		h := a.hire("w", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			switch {
			case task.Args >= quick+slow:
				late.Add(1)
			case task.Args >= quick:
				time.Sleep(slowFor) // the work
			}
			return 0, nil
		}, narrow(1))
		for _, s := range sent[quick+slow:] {
			a.awaitStatus(s.ID, model.StatusCancelled)
		}
		require.Zero(t, late.Load(), "none began after its time")
		ahead := 0
		for _, ev := range h.events.all(workerevent.Claimed) {
			for _, s := range sent[quick+slow:] {
				if s.ID == ev.TaskID {
					ahead++
				}
			}
		}
		t.Logf("%d were claimed ahead of their turn", ahead)
		require.NoError(t, h.stop())
	})
}

func TestWhatIsGivenBackUnbegunExpires(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		stay := a.hire("upkeep", double, func(c *handConfig) { c.Tenants = []string{"nobodys"} })
		s := a.sendKey("x", 1, producer.ExpiresIn(2*time.Second))
		got := a.fetchUntil(1, pull.FetchRequest{})
		task, err := a.puller.GiveBack(t.Context(), got[0].Handle, "never begun")
		require.NoError(t, err)
		require.Zero(t, task.Attempt)
		require.True(t, task.ExpireAt.Equal(task.Options.ExpiresAt))
		_, err = a.puller.GiveBack(t.Context(), got[0].Handle, "never begun")
		require.NoError(t, err, "a repetition is no error")
		require.Contains(t, a.awaitStatus(s.ID, model.StatusCancelled).Remark, "no worker had started it")
		require.NoError(t, stay.stop())
	})
}

// A worker that finds an expired task tells of its end at once, as upkeep does of those
// that nobody finds: here nobody keeps the house.
func TestAnExpiryThatAWorkerFindsIsToldAtOnce(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, find := range map[string]func(*arena){
			"a fetch":    func(a *arena) { a.fetch(pull.FetchRequest{}) },
			"a consumer": func(a *arena) { a.drain(double) },
		} {
			e.part(t, name, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				now := a.store.Clock.Now()
				task := lifecycle.NewTask(lifecycle.Draft{
					Type: chaosWork.Name(), Key: "x", Origin: &model.Origin{Kind: lifecycle.OutcomeDelivery, ID: "-/chaos.work/gone"},
					Options: model.Options{ExpiresAt: now.Add(20 * time.Millisecond)},
				}, now)
				_, err := a.store.Tasks.Insert(t.Context(), []*model.Task{task})
				require.NoError(t, err)
				awaitTrue(t, func() string {
					if a.store.Clock.Now().Before(task.ExpireAt.Add(50 * time.Millisecond)) {
						return "its time to pass"
					}
					return ""
				})
				find(a)
				require.Equal(t, model.StatusCancelled, a.get(task.ID).Status)
				a.await(task.ID, "told of", func(task *model.Task) bool { return len(task.Outbox) == 0 })
			})
		}
	})
}

func TestAFailureFromOutsideMayBeReportedTwice(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.sendKey("x", 1)
		handle := a.fetchUntil(1, pull.FetchRequest{})[0].Handle
		long := strings.Repeat("because ", 1000)
		for range 2 {
			_, err := a.p.Fail(t.Context(), handle, long, producer.Failure{})
			require.NoError(t, err)
		}
		_, err := a.p.Fail(t.Context(), handle, long+"no", producer.Failure{})
		require.ErrorIs(t, err, model.ErrFenced, "another reason is another failure")

		s := a.sendKey("y", 1, producer.Priority(9))
		handle = a.fetchUntil(1, pull.FetchRequest{})[0].Handle
		_, err = a.p.Cancel(t.Context(), s.ID, "")
		require.NoError(t, err)
		for range 2 {
			_, err = a.p.Fail(t.Context(), handle, "stopped", producer.Failure{})
			require.NoError(t, err)
		}
		require.Equal(t, model.StatusCancelled, a.get(s.ID).Status)
	})
}

func TestNobodyIsToldOfWhatParkedWithoutCallback(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := newArena(t, e), newReceiver(t)
		s := a.sendKey("x", 1, producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: r.URL}}))
		handles := make(chan string, 1)
		h := a.hire("w", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			task.NoCallback()
			handles <- task.Handle
			return 0, consumer.Park(tomorrow())
		})
		handle := receive(t, handles, "the handle")
		h.events.await(t, workerevent.Parked, 1)
		task, err := a.p.Complete(t.Context(), handle, 1)
		require.NoError(t, err)
		require.Equal(t, model.StatusSuccess, task.Status)
		require.Empty(t, a.get(s.ID).Outbox)
	})
}

// Behind a router of MongoDB 6.0 or older an update of one document must name its _id.
func TestResumeWakesByID(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var filters []bson.Raw
		client, err := mongo.Connect(engine.Options(e.URI).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, c *event.CommandStartedEvent) {
				if c.CommandName == "update" && c.Command.Lookup("update").StringValue() == "tasks" {
					filters = append(filters, c.Command.Lookup("updates", "0", "q").Document())
				}
			},
		}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		p, err := producer.New(producer.Config{Database: client.Database(a.db.Name())})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
		adm := admin.New(p)
		id := a.send(1)[0]
		require.NoError(t, adm.Pause(t.Context(), chaosWork.Name()))
		require.NoError(t, adm.Resume(t.Context(), chaosWork.Name()))
		require.Len(t, filters, 1)
		require.Equal(t, id, filters[0].Lookup("_id").StringValue())
		require.False(t, a.get(id).WakeAt.IsZero())
	})
}
