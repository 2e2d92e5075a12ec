package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/proxy"
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

// Time is virtual, so that the deadline passes while the answer is held, and not before.
func TestADeadlineOfADrainIsNoOutage(t *testing.T) {
	t.Parallel()
	for doing, rule := range map[string]proxy.Rule{
		"writing the worker's heartbeat": {Command: "findAndModify", Collection: "workers"},
		"finding the next lapse":         {Command: "find", Collection: "tasks", Contains: "lapse_at", Lacks: "Sentinel"},
		"finding due tasks":              {Command: "find", Collection: "tasks", Contains: "audience", Lacks: "Sentinel"},
	} {
		t.Run(doing, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
				px, err := proxy.Start(uri)
				require.NoError(t, err)
				t.Cleanup(px.Close)
				var outages []string
				c, _ := newQuietAt(t, px.URI(), db, Config{OnEvent: func(e Event) {
					if e.Kind == workerevent.Outage {
						outages = append(outages, e.Reason)
					}
				}})
				rule.Do = proxy.HoldAfter
				held := px.Set(rule)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = c.Drain(ctx, false)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, doing)
				require.Equal(t, 1, held.Sprung())
				require.Empty(t, outages)
			})
		})
	}
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
