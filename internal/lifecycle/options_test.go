package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func TestATasksOwnRetryUndoesItsTypesNone(t *testing.T) {
	none, fixed := model.Retry{Strategy: model.RetryNone}, model.Retry{Strategy: model.RetryFixed, Interval: 5 * time.Second}
	for _, c := range []struct {
		name                string
		task, typ, handler  model.Retry
		strategy            model.RetryStrategy
		maxErrors, interval int
	}{
		{"nobody says anything", model.Retry{}, model.Retry{}, model.Retry{}, model.RetryExponential, 10, 1},
		{"the type's none", model.Retry{}, none, fixed, model.RetryNone, 0, 5},
		{"max_errors above none", model.Retry{MaxErrors: new(5)}, none, model.Retry{}, model.RetryExponential, 5, 1},
		{"max_errors 0 above none", model.Retry{MaxErrors: new(0)}, none, model.Retry{}, model.RetryNone, 0, 1},
		{"fixed above none with its 0", fixed, model.Retry{Strategy: model.RetryNone, MaxErrors: new(0)}, model.Retry{}, model.RetryFixed, 10, 5},
		{"fixed above another's max_errors", fixed, model.Retry{MaxErrors: new(3)}, model.Retry{}, model.RetryFixed, 3, 5},
		{"none above all", none, model.Retry{Strategy: model.RetryFixed, MaxErrors: new(3)}, model.Retry{}, model.RetryNone, 0, 1},
		{"the type above its handler's none", model.Retry{}, model.Retry{MaxErrors: new(2)}, none, model.RetryExponential, 2, 1},
		{"none hides what is below it", model.Retry{MaxErrors: new(4)}, none, model.Retry{Strategy: model.RetrySequence, MaxErrors: new(7)}, model.RetryExponential, 4, 1},
		{"an interval is no strategy", model.Retry{Interval: 3 * time.Second}, none, model.Retry{}, model.RetryNone, 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			task, typ, handler := model.Options{Retry: &c.task}, model.Options{Retry: &c.typ}, model.Options{Retry: &c.handler}
			got := ResolveOptions(task, typ, handler).Retry
			require.Equal(t, c.strategy, got.Strategy)
			require.Equal(t, c.maxErrors, *got.MaxErrors)
			require.Equal(t, time.Duration(c.interval)*time.Second, got.Interval)
			require.Equal(t, got, ResolveOptions(task, Overlay(typ, handler)).Retry, "as a worker puts it")
		})
	}
}

func TestATaskUndoesItsTypesTimeout(t *testing.T) {
	typ := model.Options{ExecutionTimeout: time.Minute}
	require.Equal(t, time.Minute, ResolveOptions(model.Options{}, typ).ExecutionTimeout)
	own := model.Options{ExecutionTimeout: model.NoTimeout}
	require.NoError(t, input.Options(&own))
	require.Zero(t, ResolveOptions(own, typ).ExecutionTimeout)
}

func TestJitterStaysBelowTheLongestInterval(t *testing.T) {
	r := ResolveOptions().Retry
	for _, random := range []float64{0, 0.5, 0.75, 0.999} {
		d := RetryDelay(r, 40, random)
		require.LessOrEqual(t, d, time.Hour)
		require.GreaterOrEqual(t, d, 54*time.Minute)
	}
	require.NotEqual(t, RetryDelay(r, 40, 0.75), RetryDelay(r, 40, 0.999), "what failed together does not come back together")
}

// A lease that nobody has set follows from the ping interval, which changes at the next ping.
func TestAnExecutionKeepsItsLeaseWhenItsPingIntervalChanges(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	typ := model.Options{PingInterval: 20 * time.Second}
	for name, c := range map[string]struct {
		said    *model.Options
		before  model.Options
		changes []model.Options
		lease   time.Duration
		kept    bool
	}{
		"the default":                    {changes: []model.Options{{PingInterval: time.Minute}}, lease: 30 * time.Second, kept: true},
		"a shorter one":                  {before: model.Options{PingInterval: time.Minute}, changes: []model.Options{{PingInterval: time.Second}}, lease: 3 * time.Minute, kept: true},
		"that of the type":               {said: &typ, changes: []model.Options{{PingInterval: time.Second}}, lease: time.Minute, kept: true},
		"after another change":           {changes: []model.Options{{MaxLapses: new(1)}, {MaxLapses: new(1), PingInterval: time.Minute}}, lease: 30 * time.Second, kept: true},
		"with a lease of its own":        {before: model.Options{WorkerTimeout: time.Hour}, changes: []model.Options{{WorkerTimeout: time.Hour, PingInterval: time.Minute}}, lease: time.Hour},
		"with a lease of its own by now": {changes: []model.Options{{WorkerTimeout: time.Hour, PingInterval: time.Minute}}, lease: 30 * time.Second, kept: true},
		"so short that it changes none":  {changes: []model.Options{{PingInterval: time.Second}}, lease: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			task := NewTask(Draft{Type: "t", Key: "k", Options: c.before}, now)
			task, no := Claim(task, Claimant{WorkerID: "w", ExecID: "x", Applied: c.said}, EffectiveOf(task, model.Options{}), now)
			require.Empty(t, no)
			for _, o := range c.changes {
				var err error
				task, err = Update(task, Patch{Options: &o}, model.Options{}, now)
				require.NoError(t, err)
			}
			require.Equal(t, c.lease, EffectiveOf(task, model.Options{}).Lease)
			require.Equal(t, c.kept, task.WorkerStates[0].Options != nil)
		})
	}
}
