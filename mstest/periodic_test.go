package mstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// The nights pass while nobody waits. Each run is late by nothing, and the second attempt comes before
// the next night.
func TestADrainSkipsToTheTicksOfARule(t *testing.T) {
	db := mstest.DB(t)
	rules, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	rule, err := rules.Apply(t.Context(), schedule.Spec{Name: "nightly", Enabled: new(true), StartAt: time.Now().Add(24 * time.Hour), Cron: "0 30 2 * * *", Type: "report", MaxRuns: 3, Overlap: schedule.OverlapSkip})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	var nights []time.Time
	require.NoError(t, consumer.Handle(c, model.NewType[model.None, model.None]("report"), func(_ context.Context, task *consumer.Task[model.None]) (model.None, error) {
		nights = append(nights, task.Origin.Tick.Nominal)
		return model.None{}, nil
	}))
	require.Zero(t, mstest.Drain(t, c, mstest.With(rules.Drain)).Executions)

	report := mstest.Drain(t, c, mstest.SkipTime(), mstest.With(rules.Drain))
	require.Equal(t, 3, report.Succeeded)
	require.Greater(t, report.Skipped, 47*time.Hour)
	require.Len(t, nights, 3)
	for i, night := range nights {
		require.Equal(t, "02:30:00", night.UTC().Format(time.TimeOnly))
		if i > 0 {
			require.Equal(t, 24*time.Hour, night.Sub(nights[i-1]))
		}
	}
	runs, err := rules.Runs(t.Context(), rule.ID, periodic.RunFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, runs, 3)
	for _, run := range runs {
		require.Equal(t, schedule.RunSuccess, run.Status)
	}
}
