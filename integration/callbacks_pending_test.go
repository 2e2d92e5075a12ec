package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// toPending is the callback that is also called when a person must decide.
func (r *receiver) toPending() producer.Option {
	c := r.to()
	c.OnPending = true
	return producer.Callback(c)
}

func jams(context.Context, *consumer.Task[int]) (int, error) { return 0, errors.New("no paper") }

func TestPendingIsCalledBackAndStillWaitsForAPerson(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("k", 7, r.toPending(), producer.NeedManual(true), retries(0, time.Second)).ID
		a.drainDelivering(jams)
		task := a.get(id)
		require.Equal(t, model.StatusPending, task.Status)
		require.True(t, task.ArchiveAt.IsZero(), "it never moves to the history by itself")
		require.Empty(t, task.Outbox)
		require.Equal(t, model.StatusSuccess, a.delivery(id).Status)
		got := r.all()
		require.Len(t, got, 1)
		require.NoError(t, got[0].signed)
		require.Equal(t, http.MethodPut, got[0].method)
		require.JSONEq(t, fmt.Sprintf(`{"task_id": %q, "error_info": "no paper", "status": "Pending", "ext": 7}`, id), got[0].body)

		_, err := a.admin.Redeliver(t.Context(), id, 0)
		require.NoError(t, err)
		a.drainDelivering(jams)
		require.Len(t, r.all(), 2)
		require.Equal(t, r.all()[0], r.all()[1], "so that the receiver can drop a repetition")
		require.Equal(t, model.StatusPending, a.get(id).Status)

		_, err = a.p.Resolve(t.Context(), id, "printed by hand")
		require.NoError(t, err)
		a.drainDelivering(jams)
		require.Len(t, r.all(), 2, "the person knows")
		require.Equal(t, model.StatusManuallyProcessed, a.get(id).Status)
		require.False(t, a.get(id).ArchiveAt.IsZero())
	})
}

func TestPendingTellsNobodyUnlessItsCallbackSaysSo(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("k", 7, producer.Callback(r.to()), producer.NeedManual(true), retries(0, time.Second)).ID
		a.drainDelivering(jams)
		require.Equal(t, model.StatusPending, a.get(id).Status)
		require.Empty(t, r.all())
		_, err := a.admin.Redeliver(t.Context(), id, 0)
		require.ErrorContains(t, err, "the task has no callback for this status")
	})
}

// A person may decide before the receiver answers. A retried life is delivered once, as Pending;
// a resolved one is not delivered.
func TestAPendingTaskThatIsDecidedBeforeItsDelivery(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for _, decision := range []string{"retried", "resolved"} {
			t.Run(decision, func(t *testing.T) {
				a, r := secretive(t, e), newReceiver(t)
				id := a.sendKey("k", 7, r.toPending(), producer.NeedManual(true), retries(0, time.Second)).ID
				a.drain(jams) // this worker delivers nothing
				first := a.get(id)
				require.Equal(t, model.StatusPending, first.Status)
				if decision == "resolved" {
					_, err := a.p.Resolve(t.Context(), id, "by hand")
					require.NoError(t, err)
					a.drainDelivering(double)
					require.Empty(t, r.all())
					require.Equal(t, model.StatusManuallyProcessed, a.get(id).Status)
					require.Equal(t, model.StatusSuccess, a.get(lifecycle.DeliveryID(first)).Status, "the delivery has found nobody to tell")
					return
				}
				_, err := a.p.Retry(t.Context(), id, "paper is there")
				require.NoError(t, err)
				a.drainDelivering(double, mstest.SkipTime())
				require.Equal(t, model.StatusSuccess, a.get(id).Status)
				bodies := map[string]string{}
				for _, h := range r.all() {
					require.NotContains(t, bodies, h.id, "told twice")
					bodies[h.id] = h.body
				}
				require.Len(t, bodies, 2)
				require.JSONEq(t, fmt.Sprintf(`{"task_id": %q, "error_info": "no paper", "status": "Pending", "ext": 7}`, id),
					bodies[lifecycle.DeliveryKey(id, first.Generation)])
				require.JSONEq(t, `{"ext": 7, "result": 14}`, bodies[lifecycle.DeliveryKey(id, a.get(id).Generation)])
			})
		}
	})
}

func TestACallbackOnPendingNeedsAReceiver(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		_, err := producer.Send(t.Context(), a.p, chaosWork, 1, producer.Callback(model.Callback{OnPending: true}))
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, "callback.on_pending")
	})
}

// pendingWrites are the writes between the end of a Pending task and the removal of the last
// entry: those of other callbacks without the success of the task, which does not come.
var pendingWrites = []callbackWrite{
	{"the end of a task", proxy.Rule{Contains: "finished_at", Lacks: taken}},
	{"the making of its delivery", proxy.Rule{Command: "insert"}},
	{"the removal of its entry", proxy.Rule{Contains: "outbox.0.rev", Lacks: lifecycle.OutcomeDelivery}},
	{"the claim of the delivery", proxy.Rule{Contains: input.CallbackType, Lacks: "outbox"}},
	{"the end of the delivery", proxy.Rule{Contains: taken}},
	{"the removal of the delivery's entry", proxy.Rule{Contains: lifecycle.OutcomeDelivery, Lacks: taken}},
}

func TestNoCallbackOfPendingIsForgottenWhereverAProcessIsKilled(t *testing.T) {
	onEnginesAtFullSizeInRealTime(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
		for _, w := range pendingWrites {
			for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
				t.Run(when+" "+w.name, func(t *testing.T) {
					t.Parallel()
					k := newKillingOf(t, e, []int{1}, true)
					k.run(k.px.Set(w.trap(action)).Hit())
				})
			}
		}
	})))
}
