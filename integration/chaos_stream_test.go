package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/producer"
)

func needStreams(t *testing.T, e Engine) {
	t.Helper()
	if !e.Streams {
		t.Skip("this engine has no change streams")
	}
}

// awaitWatching waits until the worker has opened its n-th stream.
func awaitWatching(t *testing.T, h *hand, n int) {
	t.Helper()
	awaitTrue(t, func() string {
		seen := 0
		for _, e := range h.events.all(workerevent.Stream) {
			if e.Reason == "watching" {
				seen++
			}
		}
		if seen < n {
			return "watching"
		}
		return ""
	})
}

// awaitAlive waits until the stream asks for its next events. One that waits already does
// so when the event that stir makes has come.
func awaitAlive(t *testing.T, px *proxy.Proxy, stir func()) {
	t.Helper()
	alive := px.Set(proxy.Rule{Command: "getMore", Do: proxy.Pass})
	stir()
	select {
	case <-alive.Hit():
	case <-time.After(chaosPatience):
		require.Fail(t, "the stream was not opened again")
	}
}

// The polls of these workers are an hour apart while they watch.
func rarely(c *handConfig) { c.PollInterval = time.Hour }

func TestADeadStreamIsOpenedAgainAndWhatCameMeanwhileIsFound(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needStreams(t, e)
		a := newArena(t, e)
		px, away := a.behind()
		done := newEffects()
		h := a.hire("watcher", done.handle, through(away), rarely)
		awaitWatching(t, h, 1)
		ids := a.send(1)
		a.awaitSuccess(ids)
		px.Cut()
		h.events.await(t, workerevent.Outage, 1)
		missed := a.send(3) // the stream never tells of these
		px.Mend()
		a.awaitSuccess(missed)
		ids = append(ids, missed...)
		awaitAlive(t, px, func() { ids = append(ids, a.send(3)...) }) // reopened, or resumed by the driver
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
	})
}

// The server forgets where the stream was: code 286, as an oplog that is too short.
func TestALostResumeTokenCostsNoWork(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needStreams(t, e)
		a := newArena(t, e)
		px, away := a.behind()
		done := newEffects()
		h := a.hire("watcher", done.handle, through(away), rarely)
		awaitWatching(t, h, 1)
		ids := a.send(1)
		a.awaitSuccess(ids)
		lost, err := bson.Marshal(bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: int32(286)},
			{Key: "codeName", Value: "ChangeStreamHistoryLost"}, {Key: "errmsg", Value: "the resume point may no longer be in the oplog"}})
		require.NoError(t, err)
		px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
			if command == "getMore" {
				return lost
			}
			return answer
		})
		ids = append(ids, a.send(1)...) // an event, so that the stream hears at once
		awaitTrue(t, func() string {
			for _, ev := range h.events.all(workerevent.Stream) {
				if strings.HasPrefix(ev.Reason, "polling") {
					return ""
				}
			}
			return "the end of the stream"
		})
		ids = append(ids, a.send(2)...)
		a.awaitSuccess(ids) // by polls
		px.Rewrite(nil)
		awaitAlive(t, px, func() { ids = append(ids, a.send(2)...) })
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
	})
}

// The answers of hello lose all that speaks of a replica set.
func TestAStandaloneServerIsPolled(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		px.Rewrite(proxy.AsStandalone)
		streams := px.Set(proxy.Rule{Command: "aggregate", Contains: "$changeStream", Times: -1, Do: proxy.Pass})
		done := newEffects()
		h := a.hire("poller", done.handle, through(away), rarely)
		said := h.events.await(t, workerevent.Stream, 1)
		require.Contains(t, said.Reason, "no change streams")
		ids := a.send(3)
		a.awaitSuccess(ids)
		later := a.send(2, producer.In(time.Second))
		a.awaitSuccess(later)
		done.requireOnce(t, append(ids, later...))
		require.Zero(t, streams.Sprung(), "it asked for a stream all the same")
		require.Len(t, h.events.all(workerevent.Stream), 1, "said once")
	})
}

// A stream that says nothing for ever: a task with a start time runs all the same.
func TestAStartTimeIsMetWithoutAnyEvent(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needStreams(t, e)
		a := newArena(t, e)
		px, away := a.behind()
		ids := a.send(5, producer.In(3*time.Second))
		px.Set(proxy.Rule{Command: "getMore", Times: -1, Do: proxy.HoldBefore}) // of the stream: no other cursor has more than a batch
		h := a.hire("deaf", func(context.Context, *consumer.Task[int]) (int, error) { return 1, nil }, through(away), rarely)
		awaitWatching(t, h, 1)
		a.awaitSuccess(ids)
		for _, started := range h.events.all(workerevent.Started) {
			require.GreaterOrEqual(t, started.Late, time.Duration(0), "started early")
			if e.virtual() { // elsewhere the machine may be slow; polls are an hour apart
				require.Less(t, started.Late, 10*time.Second, "found by a poll, if at all")
			}
		}
	})
}
