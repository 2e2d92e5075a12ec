package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// redeliver has the callback of the task delivered once more.
func (b *bundle) redeliver(id string) producer.Sent {
	b.t.Helper()
	s, err := b.a.Redeliver(b.t.Context(), id, 0)
	require.NoError(b.t, err)
	return s
}

func TestADeliveryThatWaitsForItsRetryIsTriedAtOnceAndKeepsWhatItHasTried(t *testing.T) {
	b := setup(t)
	id := b.send(mail{}, producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/done"}})).ID
	require.Equal(t, model.StatusCompleted, b.Run(id, lifecycle.Success(fakeworker.Value(t, receipt{}))).Status)
	first := b.redeliver(id)
	require.True(t, first.Created)
	failed := b.Run(first.ID, lifecycle.Failed(failkind.Error, "it answered 503").After(time.Hour))
	require.Equal(t, model.StatusError, failed.Status)

	again := b.redeliver(id)
	require.False(t, again.Created)
	require.Equal(t, first.Generation, again.Generation, "the same life")
	d := b.get(first.ID)
	require.False(t, d.DueAt.After(b.Now()), "due now")
	require.Equal(t, 1, d.ErrorCount)
	require.Len(t, d.WorkerStates, 1, "what was tried is still to be seen")
	require.Equal(t, "it answered 503", d.ErrorInfo)

	b.Claim(first.ID, "v")
	require.Equal(t, model.StatusExecuting, b.redeliver(id).Status, "one that is under way is left alone")
	b.End(first.ID, "v", lifecycle.Success(fakeworker.Value(t, receipt{})))
	require.True(t, b.redeliver(id).Created, "one that has ended begins anew")
}

func TestSuppressedCallbackIsNotRedelivered(t *testing.T) {
	b := setup(t)
	to := producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/done"}})
	quiet := lifecycle.Outcome{NoCallback: true}
	returned, completed := b.send(mail{}, to).ID, b.send(mail{}, to).ID
	require.Equal(t, model.StatusSuccess, b.Run(returned, quiet).Status)
	handle := b.Claim(completed, "w")
	_, err := b.p.Complete(t.Context(), handle, receipt{}, producer.WithoutCallback)
	require.NoError(t, err)
	for _, id := range []string{returned, completed} {
		require.True(t, lifecycle.CallbackSuppressed(b.get(id)), "that is stored with the end")
		_, err := b.a.Redeliver(t.Context(), id, 0)
		var refused *model.RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, "the call that completed it, suppressed it")
	}
	require.EqualValues(t, 2, b.Tasks(), "no delivery was stored")
}

// If a task needs several workers, the last one to finish decides whether the callback is sent.
func TestOfSeveralWorkersTheLastSaysWhetherACallbackIsWanted(t *testing.T) {
	b := setup(t)
	id := b.send(mail{}, producer.ConcurrentWorkers(2), producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/done"}})).ID
	b.Claim(id, "quiet")
	b.Claim(id, "loud")
	b.End(id, "quiet", lifecycle.Outcome{NoCallback: true})
	require.Equal(t, model.StatusCompleted, b.End(id, "loud", lifecycle.Outcome{}).Status)
	require.True(t, b.redeliver(id).Created)
}
