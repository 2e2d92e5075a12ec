package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// MongoDB refuses a command in which a field is there twice, and the driver adds a
// maxTimeMS of its own to commands of contexts with a deadline and clients with a timeout.
func TestABoundedWriteSaysItsTimeLimitOnce(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"plain client": 0, "client with a timeout": time.Minute} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var limits []int64
			o := options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
				Started: func(_ context.Context, e *event.CommandStartedEvent) {
					if e.CommandName != "update" {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					elements, _ := e.Command.Elements()
					for _, el := range elements {
						if el.Key() == "maxTimeMS" {
							limits = append(limits, el.Value().AsInt64())
						}
					}
				},
			})
			if timeout > 0 {
				o.SetTimeout(timeout)
			}
			s, _ := openAs(t, o)
			require.NoError(t, s.Ready(t.Context()))
			require.NoError(t, s.ReadClock(t.Context()))
			now := s.Clock.Now()
			before := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, now)
			_, err := s.Tasks.Insert(t.Context(), []*model.Task{before})
			require.NoError(t, err)
			after, no := lifecycle.Claim(before, lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, lifecycle.ResolveOptions(), now)
			require.Empty(t, no)
			mu.Lock()
			limits = nil
			mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			written, err := s.Tasks.Writes(ctx, []store.Write{{Before: before, After: after}}, store.Patience)
			require.NoError(t, err)
			require.True(t, written[0].Applied)
			_, err = s.Tasks.Pings(ctx, []store.Ping{{ID: before.ID, ExecID: "e", Until: now.Add(time.Minute)}}, store.Patience)
			require.NoError(t, err)
			mu.Lock()
			said := slices.Clone(limits)
			mu.Unlock()
			require.Len(t, said, 2, "each command says it once")
			for _, limit := range said {
				require.Positive(t, limit)
				require.LessOrEqual(t, limit, int64(2500))
			}

			ended, end := context.WithCancel(t.Context())
			end()
			_, err = s.Tasks.Writes(ended, []store.Write{{Before: before, After: after}}, store.Patience)
			require.ErrorIs(t, err, context.Canceled, "the context still ends the command")
		})
	}
}
