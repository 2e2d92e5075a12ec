package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// The claim of the held task has the one place of its type while the others are looked for.
func TestAPlaceThatAHeldTaskHadGoesToTheNextTask(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		crew, start := crewAt(t, uri, db, 1, Config{}, nil)
		typ, g := model.NewType[int, int]("single"), newGauge(99)
		require.NoError(t, Handle(crew[0].Consumer, typ, func(context.Context, *Task[int]) (int, error) {
			g.during(func() {})
			return 0, nil
		}, MaxConcurrency(1)))
		due := setup.store.Clock.Now().Add(time.Minute)
		putMany(t, setup, map[string]int{typ.Name(): 100}, at(due))
		start()
		<-time.After(55 * time.Second) // it has a stream, and polls rarely
		holdTask(t, db, model.TaskID("", typ.Name(), "0"))
		g.await(t)
		require.Less(t, setup.store.Clock.Now().Sub(due), 10*time.Second)
		require.Equal(t, 1, g.most)
	})
}

func TestAPlaceIsLookedForAgainThatATaskHadWhichWasCancelledBeforeItsTurn(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	h, other := c.handlerOf(quietType), &handler{typ: "other"}
	h.limit = 2
	slots := c.held.reserve(other, c.cfg.Concurrency)
	tasks := []*model.Task{put(t, c, "a", nil), put(t, c, "b", nil)}
	c.claiming.Lock()
	out, err := c.claim(t.Context(), tasks, nil)
	c.claiming.Unlock()
	require.NoError(t, err)
	require.Len(t, out.Won, 2)
	for _, full := range []bool{true, false} {
		woken(c.wake.look)
		require.True(t, c.stop(c.held.buffer[0], ErrCancelled))
		require.Equal(t, full, woken(c.wake.look), "no fetch looks for a type at its limit")
	}
	c.held.release(other, slots)
}
