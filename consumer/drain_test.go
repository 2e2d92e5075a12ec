package consumer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var drained = model.NewType[int, model.None]("drained")

// drainOf sends n tasks and drains them, one at a time, beside the test.
func drainOf(t *testing.T, ctx context.Context, n int, h func(context.Context, *Task[int]) (model.None, error)) (c *Consumer, end func() (Drained, error), status func(key int) model.Status) {
	t.Helper()
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	for i := range n {
		_, err := producer.Send(t.Context(), p, drained, i, producer.Key(strconv.Itoa(i)), producer.Priority(9-i))
		require.NoError(t, err)
	}
	c, err = New(Config{Database: db, Concurrency: 1, ShutdownTimeout: time.Hour})
	require.NoError(t, err)
	require.NoError(t, Handle(c, drained, h))
	var got Drained
	ended := make(chan error, 1)
	go func() {
		var err error
		got, err = c.Drain(ctx, false)
		ended <- err
	}()
	status = func(key int) model.Status {
		task, err := p.Get(t.Context(), "-/drained/"+strconv.Itoa(key))
		require.NoError(t, err)
		return task.Status
	}
	return c, func() (Drained, error) { t.Helper(); err := inTime(t, ended); return got, err }, status
}

// inTime is what the channel has by a time that only a fault takes.
func inTime[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testdb.Patience):
		require.FailNow(t, "it hangs")
		panic("not reached")
	}
}

// beside calls Stop in a goroutine of its own.
func beside(c *Consumer, ctx context.Context) <-chan error {
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(ctx) }()
	return stopped
}

// A held task whose type is paused meanwhile is left, like each task of that type.
func TestADrainWaitsForADueTaskThatATransactionHolds(t *testing.T) {
	t.Run("until it ends", func(t *testing.T) { drainsBesideATransaction(t, false) })
	t.Run("until the type is paused", func(t *testing.T) { drainsBesideATransaction(t, true) })
}

func drainsBesideATransaction(t *testing.T, paused bool) {
	t.Helper()
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	for i := range 2 {
		_, err := producer.Send(t.Context(), p, drained, i, producer.Key(strconv.Itoa(i)))
		require.NoError(t, err)
	}
	const held = "-/drained/0"
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = p.Update(mongo.NewSessionContext(t.Context(), session), held, producer.Priority(6))
	require.NoError(t, err)
	ran := make(chan int, 2)
	c, err := New(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, Handle(c, drained, func(_ context.Context, task *Task[int]) (model.None, error) {
		ran <- task.Args
		return model.None{}, nil
	}))
	got := make(chan Drained, 1)
	go func() {
		d, _ := c.Drain(t.Context(), false)
		got <- d
	}()
	require.Equal(t, 1, inTime(t, ran))
	require.Eventually(t, func() bool { return c.store.ProbeLater(held) }, testdb.Patience, time.Millisecond, "it knows that the task is held")
	if paused {
		require.NoError(t, c.store.Control.Pause(t.Context(), false, []string{drained.Name()}, "", ""))
		require.Equal(t, 1, inTime(t, got).Succeeded)
	}
	require.NoError(t, session.AbortTransaction(t.Context()))
	if !paused {
		require.Equal(t, 2, inTime(t, got).Succeeded)
	}
}

func TestAStopEndsADrainGracefully(t *testing.T) {
	running, goOn := make(chan struct{}, 2), make(chan struct{})
	c, end, status := drainOf(t, t.Context(), 2, func(ctx context.Context, _ *Task[int]) (model.None, error) {
		running <- struct{}{}
		<-goOn
		return model.None{}, ctx.Err()
	})
	inTime(t, running)
	stopped := beside(c, t.Context())
	inTime(t, c.stopping.Done())
	select {
	case <-stopped:
		require.Fail(t, "it did not wait for the handler")
	default:
	}
	close(goOn)
	did, err := end()
	require.ErrorIs(t, err, ErrShutdown, "not everything is done")
	require.NoError(t, inTime(t, stopped))
	require.Equal(t, 1, did.Executions)
	require.Equal(t, 1, did.Succeeded)
	require.Equal(t, model.StatusSuccess, status(0))
	require.Equal(t, model.StatusNew, status(1))
	require.Empty(t, running, "a handler was called after the stop began")
}

func TestTheEndOfAStopsContextCutsADrainShort(t *testing.T) {
	running, goOn := make(chan struct{}, 1), make(chan struct{})
	cause := make(chan error, 1)
	c, end, status := drainOf(t, t.Context(), 1, func(ctx context.Context, _ *Task[int]) (model.None, error) {
		running <- struct{}{}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-goOn // it takes its time
		return model.None{}, ctx.Err()
	})
	inTime(t, running)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, inTime(t, beside(c, ctx)))
	_, err := end()
	require.ErrorIs(t, err, ErrShutdown)
	var left *LeftError
	require.ErrorAs(t, err, &left)
	require.Len(t, left.Executions, 1)
	require.ErrorIs(t, inTime(t, cause), ErrShutdown)
	require.Equal(t, model.StatusExecuting, status(0))
	close(goOn)
	inTime(t, c.service.Done())
	require.Equal(t, model.StatusNew, status(0), "it was given back when its handler returned")
}

func TestAStopEndsADrainWhoseOwnContextHasEnded(t *testing.T) {
	running, goOn := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	c, end, _ := drainOf(t, ctx, 1, func(context.Context, *Task[int]) (model.None, error) {
		running <- struct{}{}
		<-goOn
		return model.None{}, nil
	})
	inTime(t, running)
	cancel()
	stopping, cut := context.WithCancel(t.Context())
	cut()
	require.NoError(t, inTime(t, beside(c, stopping)))
	_, err := end()
	var left *LeftError
	require.ErrorAs(t, err, &left)
	close(goOn)
	inTime(t, c.service.Done())
}

// Time is virtual: a handler that ignores its context has as long as in a Run that stops.
func TestADrainWhoseContextHasEndedReturnsAlthoughAHandlerDoesNot(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		putMany(t, setup, map[string]int{quietType: 2}, nil)
		c, err := New(Config{Database: db, Concurrency: 1, ShutdownTimeout: 10 * time.Second})
		require.NoError(t, err)
		calls, goOn := 0, make(chan struct{})
		require.NoError(t, Handle(c, model.NewType[int, int](quietType), func(context.Context, *Task[int]) (int, error) {
			calls++
			<-goOn
			return 0, nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		did, err := c.Drain(ctx, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var left *LeftError
		require.ErrorAs(t, err, &left)
		require.Len(t, left.Executions, 1)
		require.Equal(t, 1, did.Executions)
		require.Equal(t, time.Second+10*time.Second+returnGrace, time.Since(began).Round(time.Second))

		_, err = c.Drain(t.Context(), false)
		require.ErrorIs(t, err, ErrShutdown)
		require.ErrorIs(t, c.Run(t.Context()), ErrShutdown)
		time.Sleep(time.Minute)
		count := func(filter bson.D) int64 {
			n, err := db.Collection("tasks").CountDocuments(t.Context(), filter)
			require.NoError(t, err)
			return n
		}
		alive := bson.D{{Key: "status", Value: model.StatusExecuting}, {Key: "lapse_at", Value: bson.D{{Key: "$gt", Value: time.Now()}}}}
		require.EqualValues(t, 1, count(alive), "its lease is extended until it returns")
		close(goOn)
		<-c.service.Done()
		require.EqualValues(t, 1, count(bson.D{{Key: "status", Value: model.StatusSuccess}}))
		require.Equal(t, 1, calls, "no other task follows it")
	})
}

// Tasks are claimed beside the fetches when a batch with a held one runs out of time.
func TestATaskThatIsClaimedWhenADrainEndsIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"its context ends": nil, "it fails": errAway} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, _ string, db *mongo.Database) {
				p, err := producer.New(producer.Config{Database: db})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				send := func(key string) string {
					sent, err := producer.Send(t.Context(), p, drained, 1, producer.Key(key))
					require.NoError(t, err)
					return sent.ID
				}
				release, free := holdTask(t, db, send("0")), send("1") // a statement writes them in the order of their ids
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				claimed, again := make(chan struct{}), false
				var c *Consumer
				c, err = New(Config{Database: db, OnEvent: func(e Event) {
					if e.Kind != workerevent.Claimed || e.TaskID != free || again {
						return
					}
					close(claimed)
					assert.Equal(t, 2, c.held.count().buffered, "both are claimed beside the fetches")
					c.apart.Go(func() { time.Sleep(time.Minute) }) // another claim
					if fails == nil {
						cancel()
					}
					time.Sleep(time.Second) // virtual: the drain knows
				}})
				require.NoError(t, err)
				var calls atomic.Int64
				require.NoError(t, Handle(c, drained, func(context.Context, *Task[int]) (model.None, error) {
					calls.Add(1)
					return model.None{}, nil
				}))
				_, err = c.Drain(ctx, false, func(ctx context.Context, _ time.Time) (time.Time, bool, error) {
					if fails == nil {
						return time.Time{}, false, nil
					}
					_, err := c.fetch(ctx)
					<-claimed
					return time.Time{}, false, errors.Join(fails, err)
				})
				require.ErrorIs(t, err, cmp.Or(fails, context.Canceled))
				task, err := p.Get(t.Context(), free)
				require.NoError(t, err)
				require.Equal(t, model.StatusNew, task.Status)
				require.Len(t, task.WorkerStates, 1)
				require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
				require.Zero(t, calls.Load())

				again = true
				release()
				did, err := c.Drain(t.Context(), false)
				require.NoError(t, err)
				require.Equal(t, 2, did.Succeeded, "a later drain runs them")
			})
		})
	}
}

func TestADrainOfWhatSnoozesForEverComesToRest(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	sent, err := producer.Send(t.Context(), p, drained, 1)
	require.NoError(t, err)
	c, err := New(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, Handle(c, drained, func(context.Context, *Task[int]) (model.None, error) {
		return model.None{}, Snooze(math.MaxInt64)
	}))
	did, err := c.Drain(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, 26, did.Released, "at once, and every ten years")
	require.InDelta(t, 250*365*24*time.Hour, did.Skipped, float64(time.Hour))
	task, err := p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	_, err = json.Marshal(task)
	require.NoError(t, err)
}

func TestAStopAfterADrainReturnsAtOnceAndIsForGood(t *testing.T) {
	c, end, _ := drainOf(t, t.Context(), 1, func(context.Context, *Task[int]) (model.None, error) { return model.None{}, nil })
	did, err := end()
	require.NoError(t, err)
	require.Equal(t, 1, did.Succeeded)
	_, err = c.Drain(t.Context(), false)
	require.NoError(t, err, "a drain may be repeated")
	require.NoError(t, inTime(t, beside(c, t.Context())))
	_, err = c.Drain(t.Context(), false)
	require.ErrorIs(t, err, ErrShutdown)
	require.NoError(t, c.Run(t.Context()))
	require.NoError(t, inTime(t, beside(c, t.Context())))
}

// A service may drain what is due at its start, and then run.
func TestAConsumerRunsAfterADrain(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	c, err := New(Config{Database: db, WorkerID: "w"})
	require.NoError(t, err)
	require.NoError(t, Handle(c, drained, func(context.Context, *Task[int]) (model.None, error) { return model.None{}, nil }))
	_, err = producer.Send(t.Context(), p, drained, 1)
	require.NoError(t, err)
	did, err := c.Drain(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 1, did.Succeeded)

	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()
	sent, err := producer.Send(t.Context(), p, drained, 2)
	require.NoError(t, err)
	waiting, cancel := context.WithTimeout(t.Context(), testdb.Patience)
	defer cancel()
	_, err = producer.Await(waiting, p, drained, sent)
	require.NoError(t, err)
	task, err := p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Equal(t, 1, task.Attempt, "its end was written, not lost")
	testdb.Eventually(t, "the worker says that it lives", func() bool {
		n, err := db.Collection("workers").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "w"}})
		return err == nil && n == 1
	})
	require.NoError(t, c.Stop(t.Context()))
	require.NoError(t, inTime(t, ran))
}

// The end of an execution may be written before its slot is free. A look in between passes its type by.
func TestADrainLooksAgainOnlyWhenEachSlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Consumer{held: newHoldings(1)}
		x := held(&handler{typ: "a", limit: 1})[0]
		c.held.add([]*execution{x}, 0, time.Time{})
		require.Same(t, x, c.held.next(0))
		c.held.remove(x)
		empty := false
		go func() {
			assert.NoError(t, c.awaitEmpty(t.Context()))
			empty = true
		}()
		synctest.Wait()
		require.False(t, empty)
		gone(t, c.held, x, true)
		synctest.Wait()
		require.True(t, empty)
	})
}

// What a handler has saved, its local retry finds, as the next execution does.
func TestALocalRetryGoesOnFromTheCheckpoint(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	s, err := producer.Send(t.Context(), p, drained, 1, producer.Retry(model.Retry{Local: &model.LocalRetry{Count: 2}}))
	require.NoError(t, err)
	c, err := New(Config{Database: db})
	require.NoError(t, err)
	var found []int
	require.NoError(t, Handle(c, drained, func(ctx context.Context, task *Task[int]) (model.None, error) {
		row := 0
		if _, err := task.Restore(&row); err != nil {
			return model.None{}, err
		}
		if found = append(found, row); row == 1000 {
			return model.None{}, nil
		}
		if err := task.Checkpoint(ctx, row+500); err != nil {
			return model.None{}, err
		}
		return model.None{}, errors.New("row " + strconv.Itoa(row+500))
	}))
	_, err = c.Drain(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []int{0, 500, 1000}, found)
	task, err := p.Get(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, 1, task.Attempt)
	require.Equal(t, model.StatusSuccess, task.Status)
}

// A checkpoint of a transaction that was aborted was never saved, for the transaction's next try either.
func TestARestoreReadsTheCheckpointThatWasCommitted(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	s, err := producer.Send(t.Context(), p, drained, 1, producer.Retry(model.Retry{Local: &model.LocalRetry{Count: 3}}))
	require.NoError(t, err)
	c, err := New(Config{Database: db})
	require.NoError(t, err)
	var found []int
	var lapsed error
	require.NoError(t, Handle(c, drained, func(ctx context.Context, task *Task[int]) (model.None, error) {
		if len(found) == 6 {
			const path = "worker_states.0.fail_time" // as after a takeover
			set := func(op string) {
				_, err := db.Collection("tasks").UpdateByID(ctx, s.ID, bson.D{{Key: op, Value: bson.D{{Key: path, Value: time.Now()}}}})
				require.NoError(t, err)
			}
			set("$set")
			_, lapsed = task.Restore(new(int))
			set("$unset")
			return model.None{}, nil
		}
		return model.None{}, db.Client().UseSession(ctx, func(ctx context.Context) error {
			session := mongo.SessionFromContext(ctx)
			for _, end := range []func(context.Context) error{session.AbortTransaction, session.CommitTransaction} {
				if err := session.StartTransaction(); err != nil {
					return Fatal(err)
				}
				row := 0
				if _, err := task.Restore(&row); err != nil {
					return Fatal(err)
				}
				found = append(found, row)
				if err := errors.Join(task.Progress(ctx, float64(len(found)), ""), task.Checkpoint(ctx, row+500), end(ctx)); err != nil {
					return Fatal(err)
				}
			}
			return errors.New("again")
		})
	}))
	_, err = c.Drain(t.Context(), false)
	require.NoError(t, err)
	task, err := p.Get(t.Context(), s.ID)
	require.NoError(t, err)
	require.ErrorIs(t, lapsed, model.ErrFenced)
	require.Equal(t, []int{0, 0, 500, 500, 1000, 1000}, found, task.ErrorInfo)
	require.InDelta(t, 6, task.Progress.Percent, 0)
	require.Equal(t, 1, task.Attempt)
	require.Equal(t, model.StatusSuccess, task.Status)
}
