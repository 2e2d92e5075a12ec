package producer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestAParkedExecutionIsCompletedFromOutside(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.claim(s.ID, "w")
	b.park(s.ID, "w", time.Hour)
	task, err := b.p.Complete(t.Context(), handle, receipt{Bytes: 5})
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, task.Status)
	require.Zero(t, b.signalled(s.ID), "no handler runs")
	require.Equal(t, awaited{receipt{Bytes: 5}, nil}, <-b.awaiting(s))
	again, err := b.p.Complete(t.Context(), handle, receipt{Bytes: 5})
	require.NoError(t, err, "whoever lost the answer may ask again")
	require.Equal(t, task.Rev, again.Rev)
	_, err = b.p.Complete(t.Context(), handle, receipt{Bytes: 6})
	require.ErrorIs(t, err, model.ErrFenced, "another result is not a repetition")
	_, err = b.p.Fail(t.Context(), handle, "no", Failure{})
	require.ErrorIs(t, err, model.ErrFenced)
}

func TestALateCompletionOfAParkedExecutionIsRefusedAndEndsIt(t *testing.T) {
	b := setup(t)
	for _, complete := range []func(handle string) (*model.Task, error){
		func(handle string) (*model.Task, error) { return b.p.Complete(t.Context(), handle, nil) },
		func(handle string) (*model.Task, error) {
			return b.p.Fail(t.Context(), handle, "no", Failure{Fatal: true})
		},
	} {
		s := b.send(mail{}, Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}))
		handle := b.claim(s.ID, "w")
		b.park(s.ID, "w", -time.Second)
		for range 2 {
			_, err := complete(handle)
			require.ErrorIs(t, err, model.ErrFenced)
			task, err := b.p.Get(t.Context(), s.ID)
			require.NoError(t, err)
			require.Equal(t, model.StatusError, task.Status, "its lapse is seen by who came late")
			require.Equal(t, model.FailTimeout, task.WorkerStates[0].FailKind)
			require.Equal(t, 1, task.ErrorCount)
		}
	}
}

func TestACompletionThatComesBeforeTheParkWinsAndTellsTheWorker(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.claim(s.ID, "w")
	task, err := b.p.Complete(t.Context(), handle, nil)
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, task.Status)
	require.Equal(t, 1, b.signalled(s.ID), "the handler still runs")
}

func TestAFailureFromOutsideIsJudgedByTheRetryStrategy(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}))
	handle := b.claim(s.ID, "w")
	b.park(s.ID, "w", time.Hour)
	for range 2 { // the second: the answer to the first was lost
		task, err := b.p.Fail(t.Context(), handle, "busy", Failure{})
		require.NoError(t, err)
		require.Equal(t, model.StatusError, task.Status)
		require.Equal(t, 1, task.ErrorCount, "counted once")
		require.Equal(t, "busy", task.ErrorInfo)
		require.WithinDuration(t, b.now().Add(time.Hour), task.DueAt, 10*time.Second)
		require.NotZero(t, task.WakeAt, "the workers learn when it is due")
	}
}

func TestAFailureFromOutsideMaySetItsOwnDelayOrBeFatal(t *testing.T) {
	b := setup(t)
	later := b.send(mail{})
	task, err := b.p.Fail(t.Context(), b.claim(later.ID, "w"), "busy", Failure{RetryAfter: time.Minute})
	require.NoError(t, err)
	require.WithinDuration(t, b.now().Add(time.Minute), task.DueAt, 10*time.Second)

	never := b.send(mail{})
	task, err = b.p.Fail(t.Context(), b.claim(never.ID, "w"), "gone", Failure{Fatal: true})
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, task.Status)
}

func TestAPingFromOutsideExtendsTheLeaseOfTheTask(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Lease(0, 90*time.Second))
	handle := b.claim(s.ID, "w")
	claimed := b.get(s.ID).WorkerStates[0].PingExpireTime
	b.p.store.Clock.Skip(time.Minute)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.WithinDuration(t, claimed.Add(time.Minute), pinged.Until, 10*time.Second)
	require.False(t, pinged.CancelRequested)
	doc := b.get(s.ID)
	require.Equal(t, pinged.Until, doc.WorkerStates[0].PingExpireTime)
	require.Equal(t, pinged.Until, doc.LapseAt)

	_, err = b.p.Cancel(t.Context(), s.ID, "")
	require.NoError(t, err)
	pinged, err = b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.True(t, pinged.CancelRequested)
}

func TestAPingNeverExtendsPastTheDeadline(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Timeout(40*time.Second))
	handle := b.claim(s.ID, "w")
	b.p.store.Clock.Skip(30 * time.Second)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.Equal(t, b.get(s.ID).WorkerStates[0].Deadline, pinged.Until)
}

func TestAPingOfAParkedExecutionChangesNothing(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.claim(s.ID, "w")
	b.park(s.ID, "w", 5*time.Second) // less than the lease that a ping would give
	before := b.get(s.ID)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.Equal(t, before.WorkerStates[0].PingExpireTime, pinged.Until)
	require.Equal(t, before, b.get(s.ID))
}

func TestWhoLostTheTaskIsFenced(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	handle := b.claim(s.ID, "w")
	fenced := func(why string) {
		t.Helper()
		before := b.get(s.ID)
		_, err := b.p.Complete(t.Context(), handle, receipt{})
		require.ErrorIs(t, err, model.ErrFenced, why)
		_, err = b.p.Fail(t.Context(), handle, "no", Failure{})
		require.ErrorIs(t, err, model.ErrFenced, why)
		_, err = b.p.Ping(t.Context(), handle)
		require.ErrorIs(t, err, model.ErrFenced, why)
		require.Equal(t, before, b.get(s.ID))
	}
	b.change(s.ID, func(task *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.Expire(task, lifecycle.ResolveOptions(task.Options), now.Add(time.Minute), 0), nil
	})
	fenced("its lease lapsed and was ended")
	_, err := b.p.Cancel(t.Context(), s.ID, "")
	require.NoError(t, err)
	fenced("the task ended")
	b.send(mail{}, Key("k"), OnExisting(model.RestartFailed))
	b.claim(s.ID, "w") // the same exec id, in another life
	fenced("a new life runs")
}

func TestABadCompletionIsRefusedByField(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.claim(s.ID, "w")
	refused := func(field string, err error) {
		t.Helper()
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
	}
	for _, bad := range []string{"", "!", s.ID, handle + "x", handle[:len(handle)/2]} {
		_, err := b.p.Complete(t.Context(), bad, nil)
		refused("handle", err)
		_, err = b.p.Fail(t.Context(), bad, "", Failure{})
		refused("handle", err)
		_, err = b.p.Ping(t.Context(), bad)
		refused("handle", err)
	}
	_, err := b.p.Complete(t.Context(), handle, strings.Repeat("x", input.MaxResultBytes))
	refused("result", err)
	_, err = b.p.Complete(t.Context(), handle, nil, WithoutCallback(), nil)
	refused("options[1]", err)
	_, err = b.p.Fail(t.Context(), handle, "\xff", Failure{})
	refused("reason", err)
	_, err = b.p.Fail(t.Context(), handle, "", Failure{RetryAfter: -1})
	refused("retry_after", err)
	_, err = b.p.Fail(t.Context(), handle, "", Failure{RetryAfter: 1, Fatal: true})
	refused("retry_after", err)
	require.Equal(t, model.StatusExecuting, b.get(s.ID).Status)
}

// A lease that was changed while the execution runs is that of the next claim.
func TestAPingExtendsByTheLeaseOfItsOwnClaim(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Lease(0, 20*time.Second))
	handle := b.claim(s.ID, "w")
	_, err := b.p.Update(t.Context(), s.ID, Lease(0, time.Hour))
	require.NoError(t, err)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.WithinDuration(t, b.now().Add(20*time.Second), pinged.Until, 15*time.Second)
}
