package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestATasksOwnRetryUndoesItsTypesNone(t *testing.T) {
	none, fixed := Retry{Strategy: RetryNone}, Retry{Strategy: RetryFixed, Interval: 5 * time.Second}
	for _, c := range []struct {
		name                string
		task, typ, handler  Retry
		strategy            RetryStrategy
		maxErrors, interval int
	}{
		{"nobody says anything", Retry{}, Retry{}, Retry{}, RetryExponential, 10, 1},
		{"the type's none", Retry{}, none, fixed, RetryNone, 0, 5},
		{"max_errors above none", Retry{MaxErrors: new(5)}, none, Retry{}, RetryExponential, 5, 1},
		{"max_errors 0 above none", Retry{MaxErrors: new(0)}, none, Retry{}, RetryNone, 0, 1},
		{"fixed above none with its 0", fixed, Retry{Strategy: RetryNone, MaxErrors: new(0)}, Retry{}, RetryFixed, 10, 5},
		{"fixed above another's max_errors", fixed, Retry{MaxErrors: new(3)}, Retry{}, RetryFixed, 3, 5},
		{"none above all", none, Retry{Strategy: RetryFixed, MaxErrors: new(3)}, Retry{}, RetryNone, 0, 1},
		{"the type above its handler's none", Retry{}, Retry{MaxErrors: new(2)}, none, RetryExponential, 2, 1},
		{"none hides what is below it", Retry{MaxErrors: new(4)}, none, Retry{Strategy: RetrySequence, MaxErrors: new(7)}, RetryExponential, 4, 1},
		{"an interval is no strategy", Retry{Interval: 3 * time.Second}, none, Retry{}, RetryNone, 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			task, typ, handler := Options{Retry: &c.task}, Options{Retry: &c.typ}, Options{Retry: &c.handler}
			got := ResolveOptions(task, typ, handler).Retry
			require.Equal(t, c.strategy, got.Strategy)
			require.Equal(t, c.maxErrors, *got.MaxErrors)
			require.Equal(t, time.Duration(c.interval)*time.Second, got.Interval)
			require.Equal(t, got, ResolveOptions(task, Overlay(typ, handler)).Retry, "as a worker puts it")
		})
	}
}

func TestATaskUndoesItsTypesTimeout(t *testing.T) {
	typ := Options{ExecutionTimeout: time.Minute}
	require.Equal(t, time.Minute, ResolveOptions(Options{}, typ).ExecutionTimeout)
	own := Options{ExecutionTimeout: NoTimeout}
	require.NoError(t, own.Validate())
	require.Zero(t, ResolveOptions(own, typ).ExecutionTimeout)
}

func TestJitterStaysBelowTheLongestInterval(t *testing.T) {
	r := ResolveOptions().Retry
	for _, random := range []float64{0, 0.5, 0.75, 0.999} {
		d := r.Delay(40, random)
		require.LessOrEqual(t, d, time.Hour)
		require.GreaterOrEqual(t, d, 54*time.Minute)
	}
	require.NotEqual(t, r.Delay(40, 0.75), r.Delay(40, 0.999), "what failed together does not come back together")
}
