package model

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var limitEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func keyedTask(t *testing.T, workers ...string) *Task {
	t.Helper()
	return NewTask(Draft{Type: "mail", Key: "1", Options: Options{LimitKey: "c1", SpecificWorkerIDs: workers}}, limitEpoch)
}

func TestATaskThatIsHeldBackKeepsItsStatusAndComesBackAsItWas(t *testing.T) {
	task := keyedTask(t, "w1", "w2")
	held := HoldBack(task, limitEpoch.Add(time.Second))
	require.True(t, held.HeldBack())
	require.Equal(t, []string{"#c1"}, held.Audience)
	require.Equal(t, StatusNew, held.Status)
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
	updated, err := Update(held, Patch{Priority: &priority}, Options{}, later)
	require.NoError(t, err)
	require.True(t, updated.HeldBack())
	other, err := Update(held, Patch{Options: &Options{LimitKey: "c2"}}, Options{}, later)
	require.NoError(t, err)
	require.Equal(t, []string{AudienceAll}, other.Audience, "another key, which may have room")
	future := later.Add(time.Hour)
	put, err := Update(held, Patch{Start: &future}, Options{}, later)
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
	var none *TaskType
	require.Equal(t, KeyLimit{MaxRunning: 1}, none.Keyed())
	require.False(t, none.Limited())
	require.Equal(t, 1, (&TaskType{KeyLimit: &KeyLimit{}}).Keyed().MaxRunning)
	rate := &TaskType{KeyLimit: &KeyLimit{RateLimit: &RateLimit{Count: 1, Per: time.Second}}}
	require.Zero(t, rate.Keyed().MaxRunning, "a rate alone does not say how many run")
}

// Claimers at any times, each taking as many starts as it can and beginning them as late as
// they are good, never begin more than count in any span of per.
func TestNoSpanHoldsMoreStartsThanItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := RateLimit{Count: rapid.IntRange(1, 200).Draw(t, "count"), Per: time.Duration(rapid.IntRange(100, 5000).Draw(t, "per")) * time.Millisecond}
		now, next := limitEpoch, time.Time{}
		var began []time.Time
		for range rapid.IntRange(1, 150).Draw(t, "claims") {
			now = now.Add(time.Duration(rapid.IntRange(0, int(r.Per.Milliseconds())/8).Draw(t, "pause")) * time.Millisecond)
			s := r.Reserve(next, now, rapid.IntRange(1, 50).Draw(t, "want"))
			if s.Count == 0 {
				continue
			}
			next = s.Next
			late := now.Add(time.Duration(rapid.IntRange(0, int(r.Tolerance().Milliseconds())).Draw(t, "late")) * time.Millisecond)
			for range r.Good(s, late) {
				began = append(began, late)
			}
		}
		slices.SortFunc(began, time.Time.Compare)
		for i := r.Count; i < len(began); i++ {
			if span := began[i].Sub(began[i-r.Count]); span < r.Per {
				t.Fatalf("%d began within %v, where %d are allowed in %v", r.Count+1, span, r.Count, r.Per)
			}
		}
	})
}

func TestUnderLoadNineTenthsOfARateAreReached(t *testing.T) {
	for _, r := range []RateLimit{{100, time.Second}, {1, time.Second}, {10_000, time.Second}, {7, time.Minute}, {100_000, 24 * time.Hour}} {
		next, began := time.Time{}, 0
		span := 20 * r.Per
		for at := time.Duration(0); at < span; at += r.Tolerance() / 2 {
			s := r.Reserve(next, limitEpoch.Add(at), 1_000_000)
			if s.Count > 0 {
				next, began = s.Next, began+s.Count
			}
		}
		require.GreaterOrEqual(t, float64(began), 0.9*20*float64(r.Count), "%+v", r)
	}
}

// The reservation is a majority write and the claim another: a start that were good for no
// longer than now would be lost by then, and with it all until the next.
func TestTheFirstStartAfterIdlenessIsGoodForItsWholeTolerance(t *testing.T) {
	for _, r := range []RateLimit{{1, time.Hour}, {1, 20 * time.Second}, {100, time.Second}, {1, 100 * time.Millisecond}} {
		for _, next := range []time.Time{{}, limitEpoch.Add(-r.Per), limitEpoch.Add(-r.Tolerance() - time.Microsecond)} {
			s := r.Reserve(next, limitEpoch, 1)
			require.Equal(t, 1, r.Good(s, limitEpoch.Add(r.Tolerance())), "%+v after %v", r, next)
		}
	}
}

func TestAStartIsLostWhenItsTimeHasPassed(t *testing.T) {
	r := RateLimit{Count: 10, Per: time.Second} // 50 ms good, 105 ms apart
	s := Starts{First: limitEpoch, Count: 3, Next: limitEpoch.Add(3 * r.Spacing())}
	require.Equal(t, 3, r.Good(s, limitEpoch.Add(50*time.Millisecond)))
	require.Equal(t, 2, r.Good(s, limitEpoch.Add(51*time.Millisecond)))
	require.Zero(t, r.Good(s, limitEpoch.Add(time.Second)))
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

func TestAStartAfterARestIsGoodForAllItsTime(t *testing.T) {
	r := RateLimit{Count: 10, Per: time.Second} // 50 ms good, 105 ms apart
	for _, next := range []time.Time{{}, limitEpoch.Add(-time.Minute), limitEpoch.Add(-51 * time.Millisecond)} {
		s := r.Reserve(next, limitEpoch, 3)
		require.Equal(t, Starts{First: limitEpoch, Count: 1, Next: limitEpoch.Add(r.Spacing())}, s)
		require.Equal(t, 1, r.Good(s, limitEpoch.Add(50*time.Millisecond)))
	}
	s := r.Reserve(limitEpoch.Add(-49*time.Millisecond), limitEpoch, 3)
	require.Equal(t, limitEpoch.Add(-49*time.Millisecond), s.First, "without a rest its time goes on")
	fast := RateLimit{Count: 100, Per: time.Second} // 10.5 ms apart
	s = fast.Reserve(time.Time{}, limitEpoch, 3)
	require.Equal(t, limitEpoch.Add(-2*fast.Spacing()), s.First)
	require.Equal(t, 3, s.Count)
	require.Equal(t, limitEpoch.Add(fast.Spacing()), s.Next)
}
