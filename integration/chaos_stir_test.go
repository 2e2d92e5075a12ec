package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
)

// A quiet fleet whose watcher has just seen that nothing is executing anywhere: work
// that begins after that, and whose worker dies, does not wait for the watcher's poll.
func TestAWatcherHearsThatThereIsSomethingToTakeOver(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		done := newEffects()
		h := a.hire("watcher", done.handle, func(c *handConfig) { c.PollInterval = time.Hour })
		h.events.await(t, consumer.EventStream, 1)
		warm := a.send(1)
		a.awaitSuccess(warm) // it has looked around
		awaitTrue(t, func() string {
			before := h.Stats().Scans
			time.Sleep(2 * time.Second) // several paces of its scans
			if h.Stats().Scans > before {
				return "the watcher to know that nothing is executing"
			}
			return ""
		})
		args, err := model.EncodeValue("args", 7, model.MaxArgsBytes)
		require.NoError(t, err)
		now := a.store.Clock.Now()
		fresh := model.NewTask(model.Draft{Type: chaosWork.Name(), Key: "orphan", Args: args}, now)
		eff := model.ResolveOptions(fresh.Options)
		eff.Lease = time.Second
		orphan, no := model.Claim(fresh, model.Claimant{WorkerID: "dead", ExecID: "dead's"}, eff, now)
		require.Empty(t, no)
		exists, err := a.store.Insert(t.Context(), []*model.Task{orphan})
		require.NoError(t, err)
		require.Equal(t, []bool{false}, exists)
		a.awaitSuccess([]string{orphan.ID})
		require.Equal(t, 1, a.get(orphan.ID).LapseCount)
	})
}
