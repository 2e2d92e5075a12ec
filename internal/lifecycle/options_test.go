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
