package consumer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// Of a type whose document cannot be read is not known how many of its tasks may run: they
// wait until somebody mends it, and are not sent. Those of other types are not concerned.
func TestATypeThatCannotBeReadStopsNoOther(t *testing.T) {
	db := testdb.New(t)
	bad, good := model.NewType[int, model.None]("bad"), model.NewType[int, model.None]("good")
	open := func() *producer.Producer {
		p, err := producer.New(producer.Config{Database: db})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
		return p
	}
	_, err := producer.Send(t.Context(), open(), bad, 1) // before it was spoiled
	require.NoError(t, err)
	_, err = db.Collection("task_types").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "bad"}, {Key: "max_running", Value: "three"}})
	require.NoError(t, err)

	p := open()
	_, err = producer.Send(t.Context(), p, bad, 2)
	require.ErrorContains(t, err, "the stored task type bad cannot be read")
	_, err = producer.Send(t.Context(), p, good, 3)
	require.NoError(t, err)
	adm := admin.New(p)
	types, err := adm.Types(t.Context())
	require.ErrorContains(t, err, "the stored task type bad cannot be read")
	require.Empty(t, types)
	got, err := pull.New(p).Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"bad"}})
	require.NoError(t, err)
	require.Empty(t, got)

	c, err := consumer.New(consumer.Config{Database: db, Logger: zerolog.Nop()})
	require.NoError(t, err)
	ran := make(chan int, 10)
	handle := func(_ context.Context, x *consumer.Task[int]) (model.None, error) {
		ran <- x.Args
		return model.None{}, nil
	}
	require.NoError(t, consumer.Handle(c, bad, handle))
	require.NoError(t, consumer.Handle(c, good, handle))
	runUntilEnd(t, c)
	next := func() int {
		select {
		case n := <-ran:
			return n
		case <-time.After(testdb.Patience):
			require.FailNow(t, "nothing ran")
			return 0
		}
	}
	require.Equal(t, 3, next())
	_, err = producer.Send(t.Context(), p, good, 4)
	require.NoError(t, err)
	require.Equal(t, 4, next(), "it goes on, and the other waits")
	require.NoError(t, adm.DeleteType(t.Context(), "bad", 0))
	require.Equal(t, 1, next())
}

// The worker repeats the end of that task until somebody repairs its document. It writes the ends of other tasks
// meanwhile.
func TestARunningTaskThatBecomesUnreadableKeepsNoOtherFromItsEnd(t *testing.T) {
	db := testdb.New(t)
	typ := model.NewType[string, model.None]("t")
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	sent := map[string]producer.Sent{}
	for _, name := range []string{"spoiled", "other", "later"} {
		sent[name], err = producer.Send(t.Context(), p, typ, name)
		require.NoError(t, err)
	}
	c, err := consumer.New(consumer.Config{Database: db, Logger: zerolog.Nop(), Concurrency: 3})
	require.NoError(t, err)
	var begun sync.WaitGroup
	begun.Add(3)
	mayEnd := map[string]chan struct{}{"spoiled": make(chan struct{}), "other": make(chan struct{}), "later": make(chan struct{})}
	require.NoError(t, consumer.Handle(c, typ, func(_ context.Context, x *consumer.Task[string]) (model.None, error) {
		begun.Done()
		<-mayEnd[x.Args]
		return model.None{}, nil
	}))
	runUntilEnd(t, c)
	begun.Wait()
	update := func(status any) {
		_, err := db.Collection("tasks").UpdateByID(t.Context(), sent["spoiled"].ID, bson.D{
			{Key: "$set", Value: bson.D{{Key: "status", Value: status}}}, {Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}},
		})
		require.NoError(t, err)
	}
	ends := func(name string) {
		close(mayEnd[name])
		_, err := producer.Await(t.Context(), p, typ, sent[name])
		require.NoError(t, err)
	}
	update(7)
	close(mayEnd["spoiled"])
	ends("other")
	ends("later")
	var unread *model.UnreadableError
	_, err = producer.Await(t.Context(), p, typ, sent["spoiled"])
	require.ErrorAs(t, err, &unread)
	update(model.StatusExecuting)
	_, err = producer.Await(t.Context(), p, typ, sent["spoiled"])
	require.NoError(t, err)
}

// runUntilEnd runs the consumer until the test ends.
func runUntilEnd(t *testing.T, c *consumer.Consumer) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-stopped)
	})
}
