package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

func TestACallbackThatNobodyTakesLeavesTheTaskCompletedUntilItIsRedelivered(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		r.answers(func(_ int, _ heard, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
		id := a.sendKey("k", 1, producer.Callback(r.to())).ID
		a.drainDelivering(double, mstest.SkipTime())
		require.Len(t, r.all(), 1, "410 means for good")
		require.Equal(t, model.StatusFailure, a.delivery(id).Status)
		require.Equal(t, model.StatusCompleted, a.get(id).Status)
		require.False(t, a.get(id).ArchiveAt.IsZero(), "it may move to the history all the same")

		r.answers(nil)
		sent, err := a.admin.Redeliver(t.Context(), id, 0)
		require.NoError(t, err)
		require.Equal(t, a.delivery(id).ID, sent.ID)
		require.True(t, sent.Created)
		a.drainDelivering(double, mstest.SkipTime())
		require.Equal(t, model.StatusSuccess, a.get(id).Status)
		got := r.all()
		require.Len(t, got, 2)
		require.Equal(t, got[0].id, got[1].id, "so that the receiver can drop a repetition")

		_, err = a.admin.Redeliver(t.Context(), id, 0)
		require.NoError(t, err, "what was delivered can be delivered again")
		a.drainDelivering(double)
		require.Len(t, r.all(), 3)
	})
}

func TestRedeliveryNeedsAnEndThatSomebodyIsToldOf(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		open := a.sendKey("open", 1, producer.Callback(r.to()), producer.Held()).ID
		quiet := a.sendKey("quiet", 1, producer.Callback(model.Callback{})).ID
		a.drainDelivering(double)
		for id, says := range map[string]string{open: "is Wait: only an ended task", quiet: "is Success: the task has no callback for this status"} {
			_, err := a.admin.Redeliver(t.Context(), id, 0)
			var refused *model.RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, says)
		}
		_, err := a.admin.Redeliver(t.Context(), "-/chaos.work/nothing", 0)
		require.ErrorIs(t, err, model.ErrNotFound)
		require.Empty(t, r.all())
	})
}

// A task that is run again while its first end is still to be told: each life is told
// with what it was.
func TestTheCallbackOfALifeThatIsHistoryTellsThatLife(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("k", 1, producer.Callback(r.to())).ID
		a.drain(double) // this worker delivers nothing
		first := a.get(id)
		require.Equal(t, model.StatusCompleted, first.Status)
		again := a.sendKey("k", 5, producer.Callback(r.to()), producer.OnExisting(model.RestartSucceeded))
		require.True(t, again.Created)
		a.drainDelivering(double)
		require.Equal(t, model.StatusSuccess, a.get(id).Status)
		bodies := map[string]string{}
		for _, h := range r.all() {
			bodies[h.id] = h.body
		}
		require.Len(t, bodies, 2)
		require.JSONEq(t, `{"ext": 1, "result": 2}`, bodies[lifecycle.DeliveryKey(id, first.Generation)])
		require.JSONEq(t, `{"ext": 5, "result": 10}`, bodies[lifecycle.DeliveryKey(id, a.get(id).Generation)])

		old, err := a.admin.Get(t.Context(), id, first.Generation)
		require.NoError(t, err)
		require.Empty(t, old.Outbox)
		require.Equal(t, model.StatusSuccess, old.Status, "its callback was delivered")

		_, err = a.admin.Redeliver(t.Context(), id, first.Generation)
		require.NoError(t, err)
		a.drainDelivering(double)
		got := r.all()
		require.Len(t, got, 3)
		require.Equal(t, lifecycle.DeliveryKey(id, first.Generation), got[2].id, "an older life can be told of again")
		require.JSONEq(t, `{"ext": 1, "result": 2}`, got[2].body)
		_, err = a.admin.Redeliver(t.Context(), id, 1)
		require.ErrorIs(t, err, model.ErrNotFound)
	})
}

// A task that is history only can be told of again, too.
func TestACallbackOfTheHistoryIsRedelivered(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("k", 3, producer.Callback(r.to())).ID
		a.drainDelivering(double)
		first := a.get(id)
		again := a.sendKey("k", 5, producer.Callback(r.to()), producer.OnExisting(model.RestartSucceeded), producer.Held())
		require.True(t, again.Created)
		_, err := a.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: id}})
		require.NoError(t, err)
		_, err = a.admin.Redeliver(t.Context(), id, 0)
		require.NoError(t, err)
		a.drainDelivering(double)
		got := r.all()
		require.Len(t, got, 2)
		require.Equal(t, got[0], got[1])
		require.Equal(t, lifecycle.DeliveryKey(id, first.Generation), got[1].id)
	})
}

// A person's end of a delivery is told to its task at once, without a worker.
func TestADeliveryThatAPersonResolvesMakesItsTaskASuccess(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		_, err := a.admin.PutType(t.Context(), model.TaskType{Code: input.CallbackType, Options: model.Options{NeedManual: new(true)}})
		require.NoError(t, err)
		r.answers(func(_ int, _ heard, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
		id := a.sendKey("k", 1, producer.Callback(r.to())).ID
		a.drainDelivering(double)
		require.Equal(t, model.StatusPending, a.delivery(id).Status, "the document of the type holds for deliveries")
		require.Equal(t, model.StatusCompleted, a.get(id).Status)
		_, err = a.p.Resolve(t.Context(), a.delivery(id).ID, "told them by telephone")
		require.NoError(t, err)
		require.Equal(t, model.StatusSuccess, a.get(id).Status)
		require.Empty(t, a.delivery(id).Outbox)
	})
}
