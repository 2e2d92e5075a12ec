package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// onEnginesWithTransactions runs a scenario where there are transactions.
func onEnginesWithTransactions(t *testing.T, scenario func(t *testing.T, a *ledger)) {
	onEngines(t, func(t *testing.T, e Engine) {
		if !e.Transactions {
			t.Skip("this engine has no transactions")
		}
		if e.Name == "secantusd" {
			e = e.another(t) // an open transaction delays each write of its server, and so those of other scenarios
		}
		a := newArena(t, e)
		require.NoError(t, a.db.CreateCollection(t.Context(), "entries"))
		scenario(t, &ledger{a})
	})
}

// ledger is where handlers write in their transactions.
type ledger struct{ *arena }

// write makes an entry for the task.
func (l *ledger) write(ctx context.Context, task *consumer.Task[int]) error {
	_, err := l.db.Collection("entries").InsertOne(ctx, bson.D{{Key: "task", Value: task.TaskID}})
	return err
}

// entries counts a task's entries.
func (l *ledger) entries(id string) int {
	l.t.Helper()
	n, err := l.db.Collection("entries").CountDocuments(l.t.Context(), bson.D{{Key: "task", Value: id}})
	require.NoError(l.t, err)
	return int(n)
}

// complete is how a handler ends its own execution.
func (l *ledger) complete(ctx context.Context, task *consumer.Task[int], result int) error {
	return l.transaction(ctx, func(ctx context.Context) error {
		if err := l.write(ctx, task); err != nil {
			return err
		}
		return task.CompleteIn(ctx, result)
	})
}

func (l *ledger) transaction(ctx context.Context, do func(context.Context) error) error {
	return l.db.Client().UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, do(ctx) })
		return err
	})
}

// by hand, for what WithTransaction would repeat.
func (l *ledger) byHand(ctx context.Context, do func(ctx context.Context, session *mongo.Session) error) error {
	return l.db.Client().UseSession(ctx, func(ctx context.Context) error {
		session := mongo.SessionFromContext(ctx)
		if err := session.StartTransaction(); err != nil {
			return err
		}
		return do(ctx, session)
	})
}

func TestAHandlersWritesAndItsTasksEndHappenTogether(t *testing.T) {
	returns := map[string]error{"a result": nil, "an error": errNo, "fatal": consumer.Fatal(errNo), "a park": consumer.Park(tomorrow())}
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		h := l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if err := l.complete(ctx, task, 42); err != nil {
				return 0, consumer.Fatal(err)
			}
			if got := l.get(task.TaskID).Status; got != model.StatusSuccess {
				panic("it has committed, and the task is " + got)
			}
			return 7, returns[task.Key]
		})
		n := 0
		for what := range returns {
			sent := l.sendKey(what, 0, producer.Retry(model.Retry{Local: &model.LocalRetry{Count: 3}}))
			n++
			finished := h.events.await(t, workerevent.Finished, n)
			require.Equal(t, sent.ID, finished.TaskID)
			require.Equal(t, model.StatusSuccess, finished.Status)
			require.Empty(t, finished.Outcome)
			task := l.get(sent.ID)
			require.Equal(t, 42, resultOf(t, task), "what the handler returned afterwards, %s, is ignored", what)
			require.Equal(t, 1, l.entries(sent.ID), "and nothing was tried again")
			require.EqualValues(t, 3, task.Rev)
		}
		require.Empty(t, h.events.all(workerevent.Fenced))
		require.Empty(t, h.events.all(workerevent.LeaseLost))
		awaitTrue(t, func() string {
			if held := h.Stats().Held; held > 0 {
				return fmt.Sprint(held, " executions to be let go")
			}
			return ""
		})
	})
}

// A handler that takes long to return finds its life in the history.
func TestAnEndInATransactionIsKnownWhenANewLifeHasBegun(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		h := l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args > 0 {
				return task.Args, nil
			}
			if err := l.complete(ctx, task, 42); err != nil {
				return 0, consumer.Fatal(err)
			}
			_, err := producer.Send(ctx, l.p, chaosWork, 1, producer.Key(task.Key), producer.OnExisting(model.RestartSucceeded|model.UpdateArgs))
			return 0, err
		}, narrow(1))
		sent := l.sendKey("k", 0)
		require.Equal(t, model.StatusSuccess, h.events.await(t, workerevent.Finished, 2).Status)
		require.Empty(t, h.events.all(workerevent.Fenced))
		require.Equal(t, 1, resultOf(t, l.get(sent.ID)))
		before, err := l.store.History.Life(t.Context(), sent.ID, sent.Generation)
		require.NoError(t, err)
		require.Equal(t, 42, resultOf(t, before))
	})
}

func TestAnAbortedTransactionLeavesTheEndToTheHandler(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			err := l.transaction(ctx, func(ctx context.Context) error {
				return errors.Join(l.write(ctx, task), task.CompleteIn(ctx, 42), errNo)
			})
			if task.Attempt == 1 {
				return 0, err
			}
			return 7, nil
		})
		sent := l.sendKey("k", 0, retries(1, 0))
		task := l.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, 7, resultOf(t, task))
		require.Equal(t, 1, task.ErrorCount)
		require.Zero(t, l.entries(sent.ID))
	})
}

// Somebody's write crosses the transaction, so that it is repeated.
func TestATransactionThatIsRepeatedEndsTheTaskOnce(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		runs := 0
		h := l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			return 0, l.transaction(ctx, func(tx context.Context) error {
				if err := l.write(tx, task); err != nil {
					return err
				}
				if runs++; runs == 1 { // the transaction does not see it, and conflicts with it
					if _, err := l.p.Update(ctx, task.TaskID, producer.Priority(9)); err != nil {
						return err
					}
				}
				return task.CompleteIn(tx, runs)
			})
		})
		sent := l.sendKey("k", 0)
		task := l.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, 2, resultOf(t, task))
		require.Equal(t, 9, task.Priority)
		require.Equal(t, 1, l.entries(sent.ID))
		require.NoError(t, h.stop())
		require.EqualValues(t, 1, h.Stats().Finished)
	})
}

// The network fails at the transaction's write of the end, or at its commit, before or after
// the server.
func TestATransactionThatIsCutOffEndsTheTaskOnce(t *testing.T) {
	t.Parallel()
	for what, rule := range map[string]proxy.Rule{
		"the end":    {Command: "update", Collection: "tasks", Contains: "success_time"},
		"the commit": {Command: "commitTransaction"},
	} {
		for cut, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
			t.Run(what+" "+cut, func(t *testing.T) {
				onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
					px, away := l.behind()
					rule := rule
					rule.Do = action
					trap := px.Set(rule)
					h := l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
						return 7, (&ledger{&arena{db: away}}).complete(ctx, task, 42)
					}, through(away))
					sent := l.sendKey("k", 0)
					require.Equal(t, 42, resultOf(t, l.awaitStatus(sent.ID, model.StatusSuccess)))
					// The server is through with it before the proxy has cut its answer off.
					require.Eventually(t, func() bool { return trap.Sprung() == 1 }, chaosPatience, time.Millisecond, "the write never came")
					require.Equal(t, 1, l.entries(sent.ID))
					require.NoError(t, h.stop())
					require.EqualValues(t, 1, h.Stats().Finished)
					require.Zero(t, h.Stats().Fenced)
				})
			})
		}
	}
}

// takeOver does what another worker does once the lease has lapsed.
func (l *ledger) takeOver(id string) (taken bool) {
	l.t.Helper()
	before, later := l.get(id), l.store.Clock.Now().Add(time.Hour)
	if before.Status.Ended() {
		return false
	}
	eff := lifecycle.ResolveOptions(before.Options)
	after, no := lifecycle.Claim(lifecycle.Expire(before, eff, later, 0), lifecycle.Claimant{WorkerID: "heir", ExecID: "heir's"}, eff, later)
	require.Empty(l.t, no)
	after.Rev = before.Rev + 1
	written, err := l.store.Tasks.Writes(l.t.Context(), []store.Write{{Before: before, After: after}}, 300*time.Millisecond)
	require.NoError(l.t, err)
	return written[0].Applied
}

func TestATaskThatWasTakenOverCannotBeCompletedInATransaction(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		crossing, after := make(chan error, 1), make(chan error, 1)
		h := l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			ctx = context.WithoutCancel(ctx) // it does not look at its context
			crossing <- l.byHand(ctx, func(ctx context.Context, session *mongo.Session) error {
				if err := l.write(ctx, task); err != nil {
					return err
				}
				if !l.takeOver(task.TaskID) {
					return errors.New("the takeover met an open transaction that has not touched the task")
				}
				return errors.Join(task.CompleteIn(ctx, 1), session.AbortTransaction(ctx))
			})
			err := l.complete(ctx, task, 2)
			after <- err
			return 3, err
		})
		sent := l.sendKey("k", 0)
		err := receive(t, crossing, "the transaction that the takeover crossed")
		var labelled mongo.LabeledError
		require.ErrorAs(t, err, &labelled)
		require.True(t, labelled.HasErrorLabel("TransientTransactionError"), "%v", err)
		require.ErrorIs(t, receive(t, after, "the transaction after the takeover"), model.ErrFenced)
		h.events.await(t, workerevent.Fenced, 1)
		require.Zero(t, l.entries(sent.ID))
		task := l.get(sent.ID)
		require.Equal(t, model.StatusExecuting, task.Status)
		require.Equal(t, "heir's", task.WorkerStates[1].ExecID)
	})
}

func TestATaskThatIsBeingCompletedInATransactionCannotBeTakenOver(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"commit": true, "abort": false} {
		t.Run(name, func(t *testing.T) {
			onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
				took := make(chan [2]bool, 1)
				l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
					ctx = context.WithoutCancel(ctx)
					return 0, l.byHand(ctx, func(ctx context.Context, session *mongo.Session) error {
						if err := errors.Join(l.write(ctx, task), task.CompleteIn(ctx, 1)); err != nil {
							return err
						}
						during := l.takeOver(task.TaskID)
						end := session.AbortTransaction
						if commits {
							end = session.CommitTransaction
						}
						err := end(ctx)
						took <- [2]bool{during, l.takeOver(task.TaskID)}
						return err
					})
				})
				sent := l.sendKey("k", 0)
				got := receive(t, took, "the takeovers")
				require.False(t, got[0] && commits, "both the transaction and the takeover")
				require.Equal(t, commits, !got[0] && !got[1])
				if commits {
					require.Equal(t, 1, resultOf(t, l.awaitStatus(sent.ID, model.StatusSuccess)))
					require.Equal(t, 1, l.entries(sent.ID))
				} else {
					require.Zero(t, l.entries(sent.ID))
				}
			})
		})
	}
}

// From CompleteIn on nobody pings; the handler is told when its lease is over, and the next
// execution does the work.
func TestATransactionThatIsNeverCommittedCostsTheTaskItsLease(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		causes, slow := make(chan error, 1), true
		l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if !slow {
				return 0, l.complete(ctx, task, 2)
			}
			return 0, l.byHand(ctx, func(tx context.Context, session *mongo.Session) error {
				if err := errors.Join(l.write(tx, task), task.CompleteIn(tx, 1)); err != nil {
					return err // on a slow machine the lease may be over before; another execution tries it again
				}
				slow = false
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return errors.Join(context.Cause(ctx), session.AbortTransaction(context.WithoutCancel(tx)))
			})
		})
		sent := l.sendKey("k", 0, l.seconds(2), retries(20, time.Millisecond))
		require.ErrorIs(t, receive(t, causes, "the end of the handler's context"), consumer.ErrLeaseLost)
		require.Equal(t, 2, resultOf(t, l.awaitStatus(sent.ID, model.StatusSuccess)))
		require.Equal(t, 1, l.entries(sent.ID))
	})
}

func TestCompleteInWantsTheRunningTransactionOfItsClient(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		_, elsewhere := l.behind()
		errs := make(chan []error, 1)
		l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			without := task.CompleteIn(ctx, 1)
			idle := l.db.Client().UseSession(ctx, func(ctx context.Context) error { return task.CompleteIn(ctx, 1) })
			other := (&ledger{&arena{db: elsewhere}}).byHand(ctx, func(ctx context.Context, session *mongo.Session) error {
				return errors.Join(task.CompleteIn(ctx, 1), session.AbortTransaction(ctx))
			})
			bad := l.transaction(ctx, func(ctx context.Context) error { return task.CompleteIn(ctx, func() {}) })
			errs <- []error{without, idle, other, bad}
			return 5, nil
		})
		sent := l.sendKey("k", 0)
		require.Equal(t, 5, resultOf(t, l.awaitStatus(sent.ID, model.StatusSuccess)))
		for i, err := range <-errs {
			require.ErrorIs(t, err, model.ErrInvalid, "%d", i)
		}
	})
}

func TestSeveralWorkersMayEachCompleteInATransaction(t *testing.T) {
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		for n := 1; n <= 2; n++ {
			l.hire(fmt.Sprint("w", n), func(ctx context.Context, task *consumer.Task[int]) (int, error) {
				return 0, l.complete(ctx, task, n)
			})
		}
		sent := l.sendKey("k", 0, producer.ConcurrentWorkers(2))
		task := l.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, 2, l.entries(sent.ID))
		require.Equal(t, 2, lifecycle.Successes(task))
		require.Zero(t, task.ErrorCount)
	})
}

// Who wants no callback says so, and the task is Success at once.
func TestASuccessMayWantNoCallback(t *testing.T) {
	told := consumer.Defaults(model.Options{Callback: &model.Callback{Success: &model.CallbackTarget{URL: "http://127.0.0.1:1/"}}})
	onEnginesWithTransactions(t, func(t *testing.T, l *ledger) {
		handles := make(chan string, 2)
		l.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args > 0 {
				task.NoCallback()
			}
			switch task.Key[0] {
			case 'c':
				return 0, l.complete(ctx, task, 1)
			case 'p':
				handles <- task.Handle
				return 0, consumer.Park(tomorrow())
			default:
				return 1, nil
			}
		}, func(c *handConfig) { c.options = append(c.options, told) })
		for _, kind := range []string{"return", "complete"} {
			loud, quiet := l.sendKey(kind+"-loud", 0), l.sendKey(kind+"-quiet", 1)
			l.await(loud.ID, "Completed, and its callback on the way", func(task *model.Task) bool {
				return task.Status == model.StatusCompleted && len(task.Outbox) == 0
			})
			require.Empty(t, l.awaitStatus(quiet.ID, model.StatusSuccess).Outbox, kind)
		}
		l.sendKey("park-loud", 0)
		task, err := l.p.Complete(t.Context(), receive(t, handles, "a handle"), 1)
		require.NoError(t, err)
		require.Equal(t, model.StatusCompleted, task.Status)
		l.sendKey("park-quiet", 0)
		task, err = l.p.Complete(t.Context(), receive(t, handles, "a handle"), 1, producer.WithoutCallback)
		require.NoError(t, err)
		require.Equal(t, model.StatusSuccess, task.Status)
	})
}
