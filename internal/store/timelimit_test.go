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

// in is the error of a write that has so much time.
func in(t *testing.T, limit time.Duration, write func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- write(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit + testdb.Patience): // it lasted for ever
		require.FailNow(t, "the write waits although its time has passed")
		return nil
	}
}

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
			var err error
			for limit := 100 * time.Millisecond; trap.Sprung() == 0; limit *= 2 { // until there is time to send the command
				require.Less(t, limit, testdb.Patience, "the command does not reach the server: %v", err)
				err = in(t, limit, v.write)
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, context.Canceled, "the caller did not give up")
			require.Equal(t, store.Ambiguous, store.Classify(err))
			require.True(t, store.Outage(err))
		})
	}
}
