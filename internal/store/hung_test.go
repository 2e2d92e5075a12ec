package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
)

// A firewall that has dropped a connection, for example, discards what is sent on it, and neither side gets an error.
func TestWhatAHandlerSavesOnAConnectionThatNeverAnswersIsSavedOnAnother(t *testing.T) {
	a := newAnswered(t)
	claims := a.claims(t, 1)
	_, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
	require.NoError(t, err)
	lost := a.proxy.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "progress", Do: proxy.HoldBefore})
	require.NoError(t, a.Tasks.SaveProgress(t.Context(), claims[0].After.ID, 0, "e", model.Progress{Percent: 40}))
	require.Equal(t, 1, lost.Sprung())
	task, err := a.Tasks.Get(t.Context(), claims[0].After.ID)
	require.NoError(t, err)
	require.EqualValues(t, 40, task.Progress.Percent)
	lost.Release()
}
