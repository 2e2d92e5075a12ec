package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// A server that lives, and never answers one of the writes: who waits for it gives up at its own time.
func TestAWriteThatIsNeverAnsweredEndsAtTheCallersTime(t *testing.T) {
	p := testdb.Behind(t)
	s, _ := openAs(t, options.Client().ApplyURI(p.URI()))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, s.Clock.Now())
	_, err := s.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	after := *task
	after.Rev++
	w := store.Write{Before: task, After: &after}
	for name, v := range map[string]struct {
		command string
		write   func(ctx context.Context) error
	}{
		"writes": {"update", func(ctx context.Context) error {
			_, err := s.Tasks.Writes(ctx, []store.Write{w}, store.Patience)
			return err
		}},
		"pings": {"update", func(ctx context.Context) error {
			_, err := s.Tasks.Pings(ctx, []store.Ping{{ID: task.ID, ExecID: "x", Until: time.Now()}}, store.Patience)
			return err
		}},
		"a takeover": {"findAndModify", func(ctx context.Context) error {
			_, err := s.Tasks.TakeOver(ctx, w)
			return err
		}},
		"an insert": {"insert", func(ctx context.Context) error {
			_, err := s.Tasks.Insert(ctx, []*model.Task{lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "other"}, s.Clock.Now())})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			trap := p.Set(proxy.Rule{Command: v.command, Do: proxy.HoldBefore, Times: -1})
			defer trap.Release()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- v.write(ctx) }()
			select {
			case err := <-done:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled, "the caller did not give up")
				require.Equal(t, store.Ambiguous, store.Classify(err))
				require.True(t, store.Outage(err))
				require.Positive(t, trap.Sprung())
			case <-time.After(30 * time.Second): // it lasted for ever
				require.Fail(t, "the write waits although its time has passed")
			}
		})
	}
}
