package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A quiet fleet whose watcher has just seen that nothing is executing anywhere: work
// that begins after that, and whose worker dies, does not wait for the watcher's poll.
func TestAWatcherHearsThatThereIsSomethingToTakeOver(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		done := newEffects()
		px, away := a.behind()
		h := a.hire("watcher", done.handle, through(away), func(c *handConfig) { c.PollInterval = time.Hour })
		h.events.await(t, workerevent.Stream, 1)
		warm := a.send(1)
		a.awaitSuccess(warm) // it has looked around
		// The answer to a scan from now on is that nothing is executing. A task that is not due
		// makes it scan, if it does not do so by itself.
		scan := px.Set(proxy.Rule{Command: "find", Collection: "tasks", Contains: "lapse_at", Lacks: "due_at", Do: proxy.HoldAfter})
		a.send(1, producer.In(time.Hour))
		select {
		case <-scan.Hit():
		case <-time.After(chaosPatience):
			require.Fail(t, "it did not look for leases")
		}
		scan.Release()
		args, err := codec.EncodeValue("args", 7, input.MaxArgsBytes)
		require.NoError(t, err)
		now := a.store.Clock.Now()
		fresh := lifecycle.NewTask(lifecycle.Draft{Type: chaosWork.Name(), Key: "orphan", Args: args}, now)
		eff := lifecycle.ResolveOptions(fresh.Options)
		eff.Lease = time.Second
		orphan, no := lifecycle.Claim(fresh, lifecycle.Claimant{WorkerID: "dead", ExecID: "dead's"}, eff, now)
		require.Empty(t, no)
		exists, err := a.store.Tasks.Insert(t.Context(), []*model.Task{orphan})
		require.NoError(t, err)
		require.Equal(t, []bool{false}, exists)
		a.awaitSuccess([]string{orphan.ID})
		require.Equal(t, 1, a.get(orphan.ID).LapseCount)
	})
}
