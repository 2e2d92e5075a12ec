package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRatioIsTheRateOverTheRawRate(t *testing.T) {
	var r Result
	r.measured(500, 2*time.Second)
	require.Equal(t, 250.0, *r.TasksPerSecond)
	require.Nil(t, r.Ratio, "without a yardstick there is none")
	r.yardstick(ptr(1000.0))
	require.Equal(t, 0.25, *r.Ratio)

	var nothing Result
	nothing.measured(0, time.Second)
	nothing.counted(totals{Commands: map[string]int64{"find": 3}})
	require.Nil(t, nothing.TasksPerSecond)
	require.Nil(t, nothing.RoundTripsPerTask, "no division by zero")
	require.Nil(t, nothing.ClaimsAttemptedPerWon)
	require.Equal(t, int64(3), nothing.Commands["find"])
}

func TestCountsArePerTask(t *testing.T) {
	var r Result
	r.measured(100, time.Second)
	r.counted(totals{Attempted: 120, Won: 100, Read: 30_000, Written: 20_000, Commands: map[string]int64{"find": 4, "update": 6}})
	require.Equal(t, 0.1, *r.RoundTripsPerTask)
	require.Equal(t, 500.0, *r.BytesPerTask)
	require.Equal(t, 1.2, *r.ClaimsAttemptedPerWon)
}

func TestPercentilesAreMeasuredValues(t *testing.T) {
	require.Nil(t, percentiles(nil))
	require.Equal(t, Latency{P50: 7, P95: 7, P99: 7, Max: 7}, *percentiles([]float64{7}))
	values := make([]float64, 1000)
	for i := range values {
		values[len(values)-1-i] = float64(i + 1)
	}
	require.Equal(t, Latency{P50: 500, P95: 950, P99: 990, Max: 1000}, *percentiles(values))
	require.Equal(t, 1000.0, values[0], "the caller's are left as they are")
}

func TestTotalsAddUpAndSubtract(t *testing.T) {
	var sum totals
	sum = sum.plus(totals{Finished: 1, LastFinish: 9, Commands: map[string]int64{"find": 1}}, 1)
	sum = sum.plus(totals{Finished: 2, LastFinish: 5, Commands: map[string]int64{"find": 2, "update": 1}}, 1)
	require.Equal(t, int64(3), sum.Finished)
	require.Equal(t, int64(9), sum.LastFinish)
	d := sum.plus(totals{Finished: 1, Commands: map[string]int64{"find": 3}}, -1)
	require.Equal(t, int64(2), d.Finished)
	require.Equal(t, map[string]int64{"update": 1}, d.Commands, "what did not happen is left out")
	require.Equal(t, int64(3), sum.Commands["find"])
}

func TestRowLeavesOutWhatWasNotMeasured(t *testing.T) {
	row := Result{Scenario: "idle/1", Partial: true}.Row()
	require.Len(t, row, len(Headings))
	require.Equal(t, "idle/1 (partial)", row[0])
	require.Empty(t, row[4])
	row = Result{Ratio: ptr(0.616), Latency: &Latency{P50: 1.04}}.Row()
	require.Len(t, row, len(Headings))
	require.Equal(t, "0.62", row[4])
	require.Equal(t, "1.0", row[8])
}
