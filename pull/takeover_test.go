package pull

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/producer"
)

// A caller that goes away while tasks are taken over for it must not hold them until their leases lapse once more. One task
// is taken over by a command that answers with it, many are read back.
func TestWhatIsTakenOverForACallerThatNoLongerWaitsIsGivenBack(t *testing.T) {
	single := proxy.Rule{Command: "findAndModify", Collection: "tasks", Do: proxy.HoldAfter}
	late := single
	late.Do = proxy.HoldBefore
	for name, c := range map[string]struct {
		tasks int
		rule  proxy.Rule
	}{
		"won":             {1, single},
		"not yet written": {1, late},
		"many, written":   {5, proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.HoldAfter}},
		"many, read back": {5, proxy.Rule{Command: "find", Collection: "tasks", Skip: 1, Do: proxy.HoldBefore}}, // after the scan
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			for i := range c.tasks {
				_, err := p.sender.SendJSON(t.Context(), "t", nil, producer.Key(fmt.Sprint(i)), producer.Lease(500*time.Millisecond, 2*time.Second))
				require.NoError(t, err)
			}
			p.pass(10 * time.Millisecond)
			owned := p.fetch("owner")
			require.Len(t, owned, c.tasks)
			p.pass(10 * time.Second)
			require.Empty(t, p.fetch("heir"), "it knows nothing of the last ten seconds")
			p.watch(patience)

			trap := p.px.Set(c.rule)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error)
			go func() {
				_, err := p.Fetch(ctx, FetchRequest{WorkerID: "heir", Types: []string{"t"}, Max: 10})
				failed <- err
			}()
			testdb.Receive(t, trap.Hit())
			cancel()
			require.ErrorIs(t, testdb.Receive(t, failed), context.Canceled)
			trap.Release()
			testdb.Eventually(t, "all are due again", func() bool {
				for _, f := range owned {
					task, err := p.sender.Get(t.Context(), f.Task.ID)
					require.NoError(t, err)
					if len(task.WorkerStates) < 2 || lifecycle.OpenExecutions(task) > 0 || task.DueAt.IsZero() {
						return false
					}
					require.Equal(t, 1, task.LapseCount, "that of the owner")
				}
				return true
			})
		})
	}
}
