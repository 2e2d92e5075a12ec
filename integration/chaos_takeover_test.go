package integration

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// The server carries a takeover out, and its answer is lost, so that the worker cannot know
// it. It finds out that it holds the task, and runs it at once: the lease does not have to
// lapse again.
func TestATakeoverWhoseAnswerIsLostIsFoundOut(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		e.part(t, "of a worker", func(t *testing.T, e Engine) {
			a := newArena(t, e)
			ids := a.send(1)
			a.abandon(ids, "dead", time.Second)
			px, away := a.behind()
			lost := loseTakeover(px)
			done := newEffects()
			heir := a.hire("heir", done.handle, through(away))
			a.awaitSuccess(ids)
			require.EqualValues(t, 1, lost.Load())
			requireTakenOverOnce(t, a.get(ids[0]))
			require.EqualValues(t, 1, heir.Stats().Takeovers)
			done.requireOnce(t, ids)
		})
		e.part(t, "of a fetch", func(t *testing.T, e Engine) {
			a := newArena(t, e)
			ids := a.send(1, seconds(3))
			a.abandon(ids, "dead", time.Second)
			px, away := a.behind()
			lost := loseTakeover(px)
			p, err := producer.New(producer.Config{Database: away})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
			a.puller = pull.New(p)
			got := a.fetchUntil(1, pull.FetchRequest{Lease: time.Minute})
			require.EqualValues(t, 1, lost.Load())
			_, err = a.puller.Complete(t.Context(), got[0].Handle, nil)
			require.NoError(t, err)
			requireTakenOverOnce(t, a.get(ids[0]))
		})
	})
}

// loseTakeover replaces the first answer to a single takeover by an error that tells nothing,
// and that the driver does not try again by itself. It counts them.
func loseTakeover(px *proxy.Proxy) *atomic.Int32 {
	var lost atomic.Int32
	px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		if command != "findAndModify" || !bytes.Contains(answer, []byte("claimed_at")) || lost.Add(1) > 1 {
			return answer
		}
		away, err := bson.Marshal(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 91}, {Key: "codeName", Value: "ShutdownInProgress"}, {Key: "errmsg", Value: "the server is in quiesce mode and will shut down"}})
		if err != nil {
			return answer
		}
		return away
	})
	return &lost
}

func requireTakenOverOnce(t *testing.T, task *model.Task) {
	t.Helper()
	require.Equal(t, model.StatusSuccess, task.Status)
	require.Equal(t, 1, task.LapseCount, inWords(task))
	require.Len(t, task.WorkerStates, 2, inWords(task))
}
