package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

var limitEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func keyedTask(t *testing.T, workers ...string) *model.Task {
	t.Helper()
	return NewTask(Draft{Type: "mail", Key: "1", Options: model.Options{LimitKey: "c1", SpecificWorkerIDs: workers}}, limitEpoch)
}

func TestATaskThatIsHeldBackKeepsItsStatusAndComesBackAsItWas(t *testing.T) {
	task := keyedTask(t, "w1", "w2")
	held := HoldBack(task, limitEpoch.Add(time.Second))
	require.True(t, HeldBack(held))
	require.Equal(t, []string{"#c1"}, held.Audience)
	require.Equal(t, model.StatusNew, held.Status)
	require.Equal(t, task.DueAt, held.DueAt)
	require.Equal(t, task.Rev+1, held.Rev)
	require.Nil(t, HoldBack(held, limitEpoch.Add(time.Second)), "it is already")
	back := Admit(held, limitEpoch.Add(2*time.Second))
	require.Equal(t, []string{"w1", "w2"}, back.Audience)
	require.Equal(t, limitEpoch.Add(2*time.Second), back.WakeAt, "somebody must hear of it")
	require.Nil(t, Admit(back, limitEpoch.Add(3*time.Second)))
}

func TestOnlyADueTaskWithAKeyIsHeldBack(t *testing.T) {
	require.Nil(t, HoldBack(keyedTask(t), limitEpoch.Add(-time.Second)), "not due")
	plain := NewTask(Draft{Type: "mail", Key: "1"}, limitEpoch)
	require.Nil(t, HoldBack(plain, limitEpoch), "no key")
}

func TestRepairAndUpdateKeepATaskHeldBack(t *testing.T) {
	later := limitEpoch.Add(time.Minute)
	held := HoldBack(keyedTask(t), limitEpoch)
	require.Nil(t, Repair(held, ResolveOptions(held.Options), later), "nothing is wrong with it")
	priority := 9
	updated, err := Update(held, Patch{Priority: &priority}, model.Options{}, later)
	require.NoError(t, err)
	require.True(t, HeldBack(updated))
	other, err := Update(held, Patch{Options: &model.Options{LimitKey: "c2"}}, model.Options{}, later)
	require.NoError(t, err)
	require.Equal(t, []string{AudienceAll}, other.Audience, "another key, which may have room")
	future := later.Add(time.Hour)
	put, err := Update(held, Patch{Start: &future}, model.Options{}, later)
	require.NoError(t, err)
	require.Equal(t, []string{AudienceAll}, put.Audience, "not due: its turn is not now")
}

func TestANewLifeIsNotHeldBack(t *testing.T) {
	held := HoldBack(keyedTask(t), limitEpoch)
	eff := ResolveOptions(held.Options)
	cancelled, err := Cancel(held, "", eff, limitEpoch.Add(time.Second))
	require.NoError(t, err)
	again, err := RetryNow(cancelled, "", eff, limitEpoch.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, []string{AudienceAll}, again.Audience)
}

func TestWithoutAWordOneOfAKeyRunsAtATime(t *testing.T) {
	var none *model.TaskType
	require.Equal(t, model.KeyLimit{MaxRunning: 1}, Keyed(none))
	require.False(t, Limited(none))
	require.Equal(t, 1, Keyed((&model.TaskType{KeyLimit: &model.KeyLimit{}})).MaxRunning)
	rate := &model.TaskType{KeyLimit: &model.KeyLimit{RateLimit: &model.RateLimit{Count: 1, Per: time.Second}}}
	require.Zero(t, Keyed(rate).MaxRunning, "a rate alone does not say how many run")
}

func TestASweeperLooksAtAPermitSoonAndEverMoreRarely(t *testing.T) {
	p := Permit{At: limitEpoch}
	at, ages := limitEpoch, []string{}
	for range 7 {
		at = p.LookAgain(at)
		ages = append(ages, at.Sub(limitEpoch).String())
	}
	require.Equal(t, []string{"5s", "10s", "20s", "40s", "1m20s", "2m20s", "3m20s"}, ages)
	require.Equal(t, limitEpoch.Add(-55*time.Second), p.LookAgain(limitEpoch.Add(-time.Minute)), "somebody's clock is behind")
}

// Its permit is of the key it was claimed by: with another key it would count for nobody of
// that one.
func TestTheLimitKeyStaysWhileAnExecutionIsOpen(t *testing.T) {
	later := limitEpoch.Add(time.Second)
	task := keyedTask(t)
	eff := ResolveOptions(task.Options)
	running, no := Claim(task, Claimant{WorkerID: "w", ExecID: "x"}, eff, later)
	require.Empty(t, no)
	for _, key := range []string{"c2", ""} {
		_, err := Update(running, Patch{Options: &model.Options{LimitKey: key}}, model.Options{}, later)
		var refused *model.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Reason, "limit_key")
		draft := Draft{Type: "mail", Key: "1", Options: model.Options{LimitKey: key, WorkerTimeout: time.Minute}}
		_, err = SendAgain(running, draft, model.UpdateArgs, later)
		require.ErrorAs(t, err, &refused)
		left, err := SendAgain(running, draft, model.UpdateIdle, later)
		require.NoError(t, err)
		require.Same(t, running, left)
	}
	same, err := Update(running, Patch{Options: &model.Options{LimitKey: "c1", WorkerTimeout: time.Minute}}, model.Options{}, later)
	require.NoError(t, err)
	require.Equal(t, time.Minute, same.Options.WorkerTimeout)

	back, err := Finish(running, "x", NotStarted("stopping"), eff, later, 0)
	require.NoError(t, err)
	moved, err := Update(back, Patch{Options: &model.Options{LimitKey: "c2"}}, model.Options{}, later)
	require.NoError(t, err)
	require.Equal(t, "c2", moved.Options.LimitKey)
}
