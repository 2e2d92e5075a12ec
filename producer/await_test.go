package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

type awaited struct {
	result receipt
	err    error
}

// awaiting starts an Await; its answer comes on the channel.
func (b *bundle) awaiting(s Sent) <-chan awaited {
	out := make(chan awaited, 1)
	ctx, cancel := context.WithTimeout(b.t.Context(), testdb.Patience)
	go func() {
		defer cancel()
		r, err := Await(ctx, b.p, mailType, s)
		out <- awaited{r, err}
	}()
	return out
}

func TestAwaitReturnsTheResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.send(mail{})
	got := b.awaiting(s)
	b.Run(s.ID, lifecycle.Success(fakeworker.Value(t, receipt{Bytes: 7})))
	require.Equal(t, awaited{receipt{Bytes: 7}, nil}, <-got)
	require.Equal(t, awaited{receipt{Bytes: 7}, nil}, <-b.awaiting(s), "also when it ended before")
}

func TestAwaitOfATaskThatEndedWithoutSuccessIsATaskError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, end := range map[model.Status]func(id string){
		model.StatusFailure: func(id string) { b.Run(id, lifecycle.Failed(failkind.Fatal, "no such user")) },
		model.StatusPending: func(id string) {
			_, err := b.p.Update(t.Context(), id, NeedManual(true))
			require.NoError(t, err)
			b.Run(id, lifecycle.Failed(failkind.Fatal, "no such user"))
		},
		model.StatusCancelled: func(id string) {
			_, err := b.p.Cancel(t.Context(), id, "no such user")
			require.NoError(t, err)
		},
		model.StatusManuallyProcessed: func(id string) {
			_, err := b.p.Update(t.Context(), id, NeedManual(true))
			require.NoError(t, err)
			b.Run(id, lifecycle.Failed(failkind.Fatal, "something else"))
			_, err = b.p.Resolve(t.Context(), id, "no such user")
			require.NoError(t, err)
		},
	} {
		s := b.send(mail{})
		end(s.ID)
		_, err := Await(t.Context(), b.p, mailType, s)
		var failed *model.TaskError
		require.ErrorAs(t, err, &failed, want)
		require.Equal(t, model.TaskError{ID: s.ID, Status: want, Info: "no such user"}, *failed)
	}
}

func TestAwaitFollowsItsLifeIntoTheHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	b.Run(s.ID, lifecycle.Success(fakeworker.Value(t, receipt{Bytes: 1})))
	again := b.send(mail{}, Key("k"), OnExisting(model.RestartSucceeded))
	require.Equal(t, awaited{receipt{Bytes: 1}, nil}, <-b.awaiting(s), "the first life, though a second runs")
	second := b.awaiting(again)
	b.Run(s.ID, lifecycle.Success(fakeworker.Value(t, receipt{Bytes: 2})))
	require.Equal(t, awaited{receipt{Bytes: 2}, nil}, <-second)

	// As the archiver leaves it: in the history only.
	b.send(mail{}, Key("k"), OnExisting(model.RestartSucceeded))
	_, err := b.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: s.ID}})
	require.NoError(t, err)
	require.Equal(t, awaited{receipt{Bytes: 2}, nil}, <-b.awaiting(again))
}

func TestAwaitOfWhatDoesNotExistIsNotFound(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	require.ErrorIs(t, (<-b.awaiting(Sent{ID: "-/mail/other"})).err, model.ErrNotFound)
	require.ErrorIs(t, (<-b.awaiting(Sent{ID: s.ID, Generation: s.Generation - 1})).err, model.ErrNotFound)
	require.ErrorIs(t, (<-b.awaiting(Sent{ID: s.ID, Generation: s.Generation + 1})).err, model.ErrNotFound, "of a transaction that was aborted")
}

// The user may have lost a privilege, or the server refuses the read concern. Nobody waits for ever.
func TestAwaitOfADatabaseThatRefusesToReadIsAnError(t *testing.T) {
	t.Parallel()
	px := testdb.Behind(t)
	b := setup(t, func(c *Config) { c.Database = testdb.Through(t, px) })
	s := b.send(mail{})
	px.Set(proxy.Rule{Command: "find", Collection: "tasks", Do: proxy.Refuse, Code: 13, Times: -1})
	require.ErrorContains(t, (<-b.awaiting(s)).err, "refused by the proxy")
}

func TestAwaitRefusesWhatIsNotATaskOfTheType(t *testing.T) {
	b := setup(t)
	for _, id := range []string{"", "mail", "-/other/k"} {
		_, err := Await(t.Context(), b.p, mailType, Sent{ID: id})
		require.ErrorIs(t, err, model.ErrInvalid, id)
	}
}

func TestAwaitOfNoGenerationTakesThePresentLife(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
	task, err := b.p.AwaitTask(t.Context(), Sent{ID: s.ID})
	require.NoError(t, err)
	require.Equal(t, s.Generation, task.Generation)
}

func TestAwaitSaysWhenTheResultIsOfAnotherType(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Run(s.ID, lifecycle.Success(fakeworker.Value(t, "text")))
	_, err := Await(t.Context(), b.p, mailType, s)
	require.ErrorContains(t, err, "decoding the result of task "+s.ID)
}

func TestAwaitEndsWithItsContextAndLeavesNothingBehind(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		_, err := Await(ctx, b.p, mailType, s)
		done <- err
	}()
	cancel(why)
	require.ErrorIs(t, <-done, why)
	require.Eventually(t, func() bool {
		b.p.await.mu.Lock()
		defer b.p.await.mu.Unlock()
		return !b.p.await.running
	}, testdb.Patience, time.Millisecond, "no goroutine while nobody waits")
}

func TestAllAwaitsOfAProcessShareOneQuery(t *testing.T) {
	t.Parallel()
	counter := new(commandCounter)
	b := setup(t, counter.watch(t))
	const n = 200
	sent, err := SendMany(t.Context(), b.p, mailType, items(n))
	require.NoError(t, err)
	counter.reset()
	var got []<-chan awaited
	for _, s := range sent {
		got = append(got, b.awaiting(s))
	}
	// Ten looks of each would be 2,000 queries; ten looks at all are ten and a few for
	// the awaits that came in between.
	require.Eventually(t, func() bool { return counter.count("find") >= 5 }, testdb.Patience, time.Millisecond)
	before := counter.count("find")
	for _, s := range sent {
		b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
	}
	for i := range got {
		require.NoError(t, (<-got[i]).err)
	}
	require.Less(t, before, n/4, "queries for %d awaits", n)
}

func TestEachAwaitHasATaskOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.send(mail{})
	const n = 10
	tasks := make(chan *model.Task, n)
	for range n {
		go func() {
			task, err := b.p.AwaitTask(t.Context(), s)
			assert.NoError(t, err)
			tasks <- task
		}()
	}
	testdb.Eventually(t, "all wait", func() bool {
		b.p.await.mu.Lock()
		defer b.p.await.mu.Unlock()
		return len(b.p.await.waits) == n
	})
	b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
	own := map[*model.Task]bool{}
	for range n {
		own[testdb.Receive(t, tasks)] = true
	}
	require.Len(t, own, n)
}

func TestPausesBetweenLooksGrowToASecond(t *testing.T) {
	b := setup(t)
	a := newAwaiter(b.p.room.Store, zerolog.Nop())
	w := &wait{id: b.send(mail{}).ID, done: make(chan struct{})}
	a.running = true // this test is the goroutine
	require.NoError(t, a.join(w))
	var pauses []time.Duration
	for range 10 {
		pauses = append(pauses, w.pause)
		a.lookAt([]*wait{w})
	}
	require.Equal(t, firstLook, pauses[0])
	require.Equal(t, lastLook, pauses[9])
	require.IsIncreasing(t, pauses[:8])
}

func TestAwaitOutlastsADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	px := testdb.Behind(t)
	b := setup(t, func(c *Config) {
		o := options.Client().SetServerSelectionTimeout(50 * time.Millisecond)
		c.Database = ownClient(t, px.URI(), o).Database(c.Database.Name())
		testdb.Reached(t, c.Database.Client())
	})
	s := b.send(mail{})
	// The worker works past the proxy.
	direct := setup(t, func(c *Config) { c.Database = testdb.New(t).Client().Database(b.db.Name()) })
	px.Cut()
	got := b.awaiting(s)
	direct.Run(s.ID, lifecycle.Success(fakeworker.Value(t, receipt{Bytes: 3})))
	_, err := b.p.Get(t.Context(), s.ID)
	require.Error(t, err, "the database is away")
	px.Mend()
	require.Equal(t, awaited{receipt{Bytes: 3}, nil}, <-got)
}
