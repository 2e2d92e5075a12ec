package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/workerevent"
)

// A wait for change events may last longer than the deadline leaves. It is no outage that the driver then refuses it.
func TestADeadlineOfRunIsNoOutage(t *testing.T) {
	t.Parallel()
	var c *Consumer
	heard := make(chan string, 100)
	tell := func(what string) {
		select {
		case heard <- what:
		default:
		}
	}
	c, sent := newQuiet(t, testdb.New(t), Config{OnEvent: func(e Event) {
		if e.Kind == workerevent.Outage {
			tell("outage: " + e.Reason)
		}
	}})
	sent.watch(func(command string) {
		if command == "getMore" {
			tell("waits")
		}
	})
	require.Less(t, 30*time.Second, store.StreamAwait)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	require.Equal(t, "waits", testdb.Receive(t, heard))
	cancel()
	require.NoError(t, <-ran)
	require.Empty(t, heard)
}

func TestAnUndatedContextEndsWithItsOwnAndHasItsValues(t *testing.T) {
	t.Parallel()
	type key struct{}
	enough := errors.New("enough")
	outer, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
	dated, cancel := context.WithTimeout(outer, time.Hour)
	defer cancel()
	ctx, stop := undated(dated)
	defer stop()
	_, has := ctx.Deadline()
	require.False(t, has)
	require.Equal(t, 7, ctx.Value(key{}))
	require.NoError(t, ctx.Err())
	end(enough)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), enough)

	other, stop := undated(t.Context())
	stop()
	require.ErrorIs(t, other.Err(), context.Canceled)
}
