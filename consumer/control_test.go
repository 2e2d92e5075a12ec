package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The number of workers takes effect at once. A lease is that of the claim, and so is the ping interval that follows
// from it.
func TestALeaseThatChangesLeavesThePingIntervalOfARunningExecution(t *testing.T) {
	w := newWorld(t, nil)
	x := w.hold("a", nil)
	options := model.Options{WorkerTimeout: 45 * time.Second, ConcurrentWorkerCount: 2}
	changed, err := lifecycle.Update(x.task, lifecycle.Patch{Options: &options}, model.Options{}, w.serverTime())
	require.NoError(t, err)
	w.c.obey(x, changed)
	require.True(t, x.lease.Many())
	require.Equal(t, 10*time.Second, x.lease.Interval())
}
