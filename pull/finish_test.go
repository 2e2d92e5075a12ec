package pull

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestAParkedExecutionIsCompletedFromOutside(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w")
	b.Park(s.ID, "w", time.Hour)
	task, err := b.p.Complete(t.Context(), handle, receipt{Bytes: 5})
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, task.Status)
	require.Zero(t, b.Signalled(s.ID), "no handler runs")
	got, err := producer.Await(t.Context(), b.sender, mailType, s)
	require.NoError(t, err)
	require.Equal(t, receipt{Bytes: 5}, got)
	again, err := b.p.Complete(t.Context(), handle, receipt{Bytes: 5})
	require.NoError(t, err, "whoever lost the answer may ask again")
	require.Equal(t, task.Rev, again.Rev)
	_, err = b.p.Complete(t.Context(), handle, receipt{Bytes: 6})
	require.ErrorIs(t, err, model.ErrFenced, "another result is not a repetition")
	_, err = b.p.Fail(t.Context(), handle, "no", producer.Failure{})
	require.ErrorIs(t, err, model.ErrFenced)
}

func TestARepeatedCompletionIsConfirmedAfterTheTaskMovedToTheHistory(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Key("k"))
	handle := b.Claim(s.ID, "w")
	_, err := b.p.Complete(t.Context(), handle, receipt{Bytes: 5})
	require.NoError(t, err)
	long := time.Now().Add(-30 * 24 * time.Hour)
	_, err = b.db.Collection("tasks").UpdateByID(t.Context(), s.ID, bson.M{"$set": bson.M{"archive_at": long, "finished_at": long}})
	require.NoError(t, err)
	moved, err := b.Store.History.Archive(t.Context(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, 1, moved.Moved)
	for _, sentAgain := range []bool{false, true} {
		if sentAgain {
			require.True(t, b.send(mail{}, producer.Key("k")).Created)
		}
		again, err := b.p.Complete(t.Context(), handle, receipt{Bytes: 5})
		require.NoError(t, err)
		require.Equal(t, s.Generation, again.Generation)
		_, err = b.p.Complete(t.Context(), handle, receipt{Bytes: 6})
		require.Error(t, err, "another result is not a repetition")
		_, err = b.p.Fail(t.Context(), handle, "no", producer.Failure{})
		require.Error(t, err)
	}
}

// A failover may undo what a read shows, unless a majority has it. A write is acknowledged by a majority.
func TestWhatIsConfirmedWithoutAChangeHasWaitedForAMajority(t *testing.T) {
	p := newProcess(t)
	_, err := p.sender.SendJSON(t.Context(), "t", nil, producer.Key("k"), producer.Timeout(10*time.Second), producer.Lease(0, time.Minute))
	require.NoError(t, err)
	got := p.fetch("w")
	require.Len(t, got, 1)
	writes := func(do func()) int64 {
		before := p.ofTasks.Load()
		do()
		return p.ofTasks.Load() - before
	}
	require.EqualValues(t, 1, writes(func() {
		pinged, err := p.Ping(t.Context(), got[0].Handle)
		require.NoError(t, err)
		require.WithinDuration(t, p.serverTime().Add(10*time.Second), pinged.Until, time.Second, "the deadline, as before")
	}))
	_, err = p.Complete(t.Context(), got[0].Handle, nil)
	require.NoError(t, err)
	before := p.majority.Load()
	_, err = p.Complete(t.Context(), got[0].Handle, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, p.majority.Load()-before)
	_, err = p.Complete(t.Context(), got[0].Handle, 7)
	require.ErrorIs(t, err, model.ErrFenced)
	require.EqualValues(t, 2, p.majority.Load()-before, "who is refused does not try again")
}

func TestALateCompletionOfAParkedExecutionIsRefusedAndEndsIt(t *testing.T) {
	b := setup(t)
	for _, complete := range []func(handle string) (*model.Task, error){
		func(handle string) (*model.Task, error) { return b.p.Complete(t.Context(), handle, nil) },
		func(handle string) (*model.Task, error) {
			return b.p.Fail(t.Context(), handle, "no", producer.Failure{Fatal: true})
		},
	} {
		s := b.send(mail{}, producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}))
		handle := b.Claim(s.ID, "w")
		b.Park(s.ID, "w", -time.Second)
		for range 2 {
			_, err := complete(handle)
			require.ErrorIs(t, err, model.ErrFenced)
			task, err := b.sender.Get(t.Context(), s.ID)
			require.NoError(t, err)
			require.Equal(t, model.StatusError, task.Status, "its lapse is seen by who came late")
			require.Equal(t, failkind.Timeout, task.WorkerStates[0].FailKind)
			require.Equal(t, 1, task.ErrorCount)
		}
	}
}

func TestACompletionThatComesBeforeTheParkWinsAndTellsTheWorker(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w")
	task, err := b.p.Complete(t.Context(), handle, nil)
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, task.Status)
	require.Equal(t, 1, b.Signalled(s.ID), "the handler still runs")
}

// No process of ours runs the handler of what was fetched: a signal, which all of them read, would be for nobody.
func TestTheEndOfAPulledExecutionSignalsNobody(t *testing.T) {
	b := setup(t)
	for _, end := range []func(handle string) (*model.Task, error){
		func(h string) (*model.Task, error) { return b.p.Complete(t.Context(), h, nil) },
		func(h string) (*model.Task, error) {
			return b.p.Fail(t.Context(), h, "gone", producer.Failure{Fatal: true})
		},
		func(h string) (*model.Task, error) { return b.p.GiveBack(t.Context(), h, "") }, // the last: it is due again
	} {
		s := b.send(mail{})
		fetched, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w", Types: []string{"mail"}})
		require.NoError(t, err)
		require.Len(t, fetched, 1)
		require.True(t, b.get(s.ID).WorkerStates[0].Pulled)
		_, err = end(fetched[0].Handle)
		require.NoError(t, err)
		require.Zero(t, b.Signalled(s.ID))
	}
}

func TestAFailureFromOutsideIsJudgedByTheRetryStrategy(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}))
	handle := b.Claim(s.ID, "w")
	b.Park(s.ID, "w", time.Hour)
	for range 2 { // the second: the answer to the first was lost
		task, err := b.p.Fail(t.Context(), handle, "busy", producer.Failure{})
		require.NoError(t, err)
		require.Equal(t, model.StatusError, task.Status)
		require.Equal(t, 1, task.ErrorCount, "counted once")
		require.Equal(t, "busy", task.ErrorInfo)
		require.WithinDuration(t, b.Now().Add(time.Hour), task.DueAt, 10*time.Second)
		require.NotZero(t, task.WakeAt, "the workers learn when it is due")
	}
}

func TestAFailureFromOutsideMaySetItsOwnDelayOrBeFatal(t *testing.T) {
	b := setup(t)
	later := b.send(mail{})
	task, err := b.p.Fail(t.Context(), b.Claim(later.ID, "w"), "busy", producer.Failure{RetryAfter: time.Minute})
	require.NoError(t, err)
	require.WithinDuration(t, b.Now().Add(time.Minute), task.DueAt, 10*time.Second)

	never := b.send(mail{})
	task, err = b.p.Fail(t.Context(), b.Claim(never.ID, "w"), "gone", producer.Failure{Fatal: true})
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, task.Status)

	noStep := b.send(mail{}) // for which a plan error is a fatal one
	handle := b.Claim(noStep.ID, "w")
	for range 2 { // the second: the answer to the first was lost
		task, err = b.p.Fail(t.Context(), handle, "wrong plan", producer.Failure{Fatal: true, PlanError: true})
		require.NoError(t, err)
		require.Equal(t, model.StatusFailure, task.Status)
		require.Equal(t, failkind.PlanError, task.WorkerStates[0].FailKind)
	}
}

func TestAPingFromOutsideExtendsTheLeaseOfTheTask(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Lease(0, 90*time.Second))
	handle := b.Claim(s.ID, "w")
	claimed := b.get(s.ID).WorkerStates[0].PingExpireTime
	b.p.room.Store.Clock.Skip(time.Minute)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.WithinDuration(t, claimed.Add(time.Minute), pinged.Until, 10*time.Second)
	require.False(t, pinged.CancelRequested)
	doc := b.get(s.ID)
	require.Equal(t, pinged.Until, doc.WorkerStates[0].PingExpireTime)
	require.Equal(t, pinged.Until, doc.LapseAt)

	_, err = b.sender.Cancel(t.Context(), s.ID, "")
	require.NoError(t, err)
	pinged, err = b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.True(t, pinged.CancelRequested)
}

func TestAPingNeverExtendsPastTheDeadline(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Timeout(40*time.Second))
	handle := b.Claim(s.ID, "w")
	b.p.room.Store.Clock.Skip(30 * time.Second)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.Equal(t, b.get(s.ID).WorkerStates[0].Deadline, pinged.Until)
}

func TestAPingOfAParkedExecutionChangesNothing(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w")
	b.Park(s.ID, "w", 20*time.Second) // less than the lease that a ping would give
	before := b.get(s.ID)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.Equal(t, before.WorkerStates[0].PingExpireTime, pinged.Until)
	require.Equal(t, before, b.get(s.ID))
}

func TestWhoLostTheTaskIsFenced(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Key("k"))
	handle := b.Claim(s.ID, "w")
	fenced := func(why string) {
		t.Helper()
		before := b.get(s.ID)
		_, err := b.p.Complete(t.Context(), handle, receipt{})
		require.ErrorIs(t, err, model.ErrFenced, why)
		_, err = b.p.Fail(t.Context(), handle, "no", producer.Failure{})
		require.ErrorIs(t, err, model.ErrFenced, why)
		_, err = b.p.Ping(t.Context(), handle)
		require.ErrorIs(t, err, model.ErrFenced, why)
		require.Equal(t, before, b.get(s.ID))
	}
	b.Change(s.ID, func(task *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.Expire(task, lifecycle.ResolveOptions(task.Options), now.Add(time.Minute), 0), nil
	})
	fenced("its lease lapsed and was ended")
	_, err := b.sender.Cancel(t.Context(), s.ID, "")
	require.NoError(t, err)
	fenced("the task ended")
	b.send(mail{}, producer.Key("k"), producer.OnExisting(model.RestartFailed))
	b.Claim(s.ID, "w") // the same exec id, in another life
	fenced("a new life runs")
}

func TestABadCompletionIsRefusedByField(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w")
	refused := func(field string, err error) {
		t.Helper()
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
	}
	for _, bad := range []string{"", "!", s.ID, handle + "x", handle[:len(handle)/2]} {
		_, err := b.p.Complete(t.Context(), bad, nil)
		refused("handle", err)
		_, err = b.p.Fail(t.Context(), bad, "", producer.Failure{})
		refused("handle", err)
		_, err = b.p.Ping(t.Context(), bad)
		refused("handle", err)
	}
	_, err := b.p.Complete(t.Context(), handle, strings.Repeat("x", input.MaxResultBytes))
	refused("result", err)
	_, err = b.p.Complete(t.Context(), handle, nil, producer.WithoutCallback, 2)
	refused("options[1]", err)
	_, err = b.p.Fail(t.Context(), handle, "\xff", producer.Failure{})
	refused("reason", err)
	_, err = b.p.Fail(t.Context(), handle, "", producer.Failure{RetryAfter: -1})
	refused("retry_after", err)
	_, err = b.p.Fail(t.Context(), handle, "", producer.Failure{RetryAfter: 1, Fatal: true})
	refused("retry_after", err)
	_, err = b.p.Fail(t.Context(), handle, "", producer.Failure{RetryAfter: 1, PlanError: true})
	refused("retry_after", err)
	require.Equal(t, model.StatusExecuting, b.get(s.ID).Status)
}

// A lease that was changed while the execution runs is that of the next claim.
func TestAPingExtendsByTheLeaseOfItsOwnClaim(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Lease(0, 20*time.Second))
	handle := b.Claim(s.ID, "w")
	_, err := b.sender.Update(t.Context(), s.ID, producer.Lease(0, time.Hour))
	require.NoError(t, err)
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.WithinDuration(t, b.Now().Add(20*time.Second), pinged.Until, 15*time.Second)
}

// Without a lease of its own, the one of a task follows from its ping interval.
func TestAPingIntervalThatChangesLeavesTheLeaseOfTheClaim(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w")
	for _, c := range []struct{ said, answered time.Duration }{{time.Minute, 10 * time.Second}, {12 * time.Second, 12 * time.Second}} {
		_, err := b.sender.Update(t.Context(), s.ID, producer.Lease(c.said, 0))
		require.NoError(t, err)
		pinged, err := b.p.Ping(t.Context(), handle)
		require.NoError(t, err)
		require.Less(t, pinged.Until.Sub(b.Now()), 35*time.Second)
		require.Equal(t, c.answered, pinged.PingInterval, "a third of the lease, if it is more than half of it")
		task := b.get(s.ID)
		require.Equal(t, c.answered, lifecycle.EffectiveOf(task, model.Options{}).PingInterval, "as people see it")
	}
}

// Without a ping interval of its own, the one of a task follows from its lease.
func TestALeaseThatChangesLeavesThePingIntervalOfTheClaim(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w")
	for _, lease := range []time.Duration{45 * time.Second, time.Hour} {
		_, err := b.sender.Update(t.Context(), s.ID, producer.Lease(0, lease))
		require.NoError(t, err)
		pinged, err := b.p.Ping(t.Context(), handle)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, pinged.PingInterval)
	}
}

func TestAPingExtendsByTheLeaseOfTheType(t *testing.T) {
	b := setup(t)
	typ := &model.TaskType{Code: "mail", Options: model.Options{WorkerTimeout: 10 * time.Minute}}
	b.Now()
	require.NoError(t, b.Store.Types.Put(t.Context(), typ))
	handle := b.Claim(b.send(mail{}).ID, "w") // by a worker that knows no type
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.WithinDuration(t, b.Now().Add(10*time.Minute), pinged.Until, time.Minute)
}

func TestAPingTellsAWorkerThatTheFilterExcludesItAndItsEndReleasesTheTask(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	fetch := func(worker string) []Fetched {
		got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: worker, Types: []string{"mail"}})
		require.NoError(t, err)
		return got
	}
	got := fetch("w1")
	require.Len(t, got, 1)
	handle := got[0].Handle
	pinged, err := b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.False(t, pinged.CancelRequested)

	_, err = b.sender.Update(t.Context(), s.ID, producer.Workers("w2"))
	require.NoError(t, err)
	pinged, err = b.p.Ping(t.Context(), handle)
	require.NoError(t, err)
	require.True(t, pinged.CancelRequested)

	var rev int64
	for range 2 { // the second: the answer to the first was lost
		task, err := b.p.Fail(t.Context(), handle, "stopped", producer.Failure{Fatal: true})
		require.NoError(t, err)
		require.Equal(t, model.StatusNew, task.Status)
		require.Zero(t, task.ErrorCount)
		require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
		require.Equal(t, "the worker filter no longer names this worker: stopped", task.WorkerStates[0].FailReason)
		require.True(t, rev == 0 || rev == task.Rev)
		rev = task.Rev
	}
	require.Empty(t, fetch("w1"))
	require.Len(t, fetch("w2"), 1, "it is due at once for a worker that the filter names")
}

func TestANewFilterEndsTheParkedExecutionsOfWorkersThatItExcludes(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	handle := b.Claim(s.ID, "w1")
	b.Park(s.ID, "w1", time.Hour)
	task, err := b.sender.Update(t.Context(), s.ID, producer.Workers("w2"))
	require.NoError(t, err)
	require.Equal(t, model.StatusNew, task.Status)
	require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
	_, err = b.p.Complete(t.Context(), handle, receipt{})
	require.ErrorIs(t, err, model.ErrFenced)
	got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w2", Types: []string{"mail"}})
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestEachPingAnswersThePingIntervalOfNow(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Lease(5*time.Second, time.Minute))
	handle := b.Claim(s.ID, "w")
	for _, want := range []time.Duration{5 * time.Second, 2 * time.Second} {
		_, err := b.sender.Update(t.Context(), s.ID, producer.Lease(want, time.Minute))
		require.NoError(t, err)
		pinged, err := b.p.Ping(t.Context(), handle)
		require.NoError(t, err)
		require.Equal(t, want, pinged.PingInterval)
	}
}
