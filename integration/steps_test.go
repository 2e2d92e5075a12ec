package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// once counts how often the functions of steps ran.
type once struct {
	mu  sync.Mutex
	ran []string
}

func (o *once) did(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ran = append(o.ran, what)
}

func (o *once) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ran)
}

// adds is the function of a step that makes n and notes that it ran.
func (o *once) adds(what string, n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		o.did(what)
		return n, nil
	}
}

func namesOf(steps []model.Step) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

func TestAStepIsDoneOnceHoweverOftenItsHandlerFails(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var o once
		handle := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			one, err := consumer.Step(ctx, "one", o.adds("one", 1))
			if err != nil || task.Attempt == 1 {
				return 0, errors.Join(err, errNo)
			}
			two, err := consumer.Step(ctx, "two", func(ctx context.Context) (int, error) {
				if task.Attempt == 2 {
					return 0, errNo
				}
				return o.adds("two", 10*one)(ctx)
			})
			if err != nil || task.Attempt == 3 {
				return 0, errors.Join(err, errNo)
			}
			return one + two, nil
		}
		a.hire("w1", handle)
		a.hire("w2", handle)
		sent := a.sendKey("k", 0, retries(5, 0))
		result, err := producer.Await(t.Context(), a.p, chaosWork, sent)
		require.NoError(t, err)
		require.Equal(t, 11, result)
		require.Equal(t, []string{"one", "two"}, o.all(), "a step whose function failed is not saved")
		task := a.get(sent.ID)
		require.Equal(t, []string{"one", "two"}, namesOf(task.Steps))
		require.Equal(t, []int{1, 3}, []int{task.Steps[0].Attempt, task.Steps[1].Attempt})
		require.EqualValues(t, 9, task.Rev, "four claims, four ends; steps do not raise it")
	})
}

// What a step returns is what the next execution would read.
func TestAStepReturnsWhatWasSaved(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		type value struct {
			N      int            `json:"n"`
			M      map[string]any `json:"m"`
			secret string
		}
		found := make(chan value, 3)
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			v, err := consumer.Step(ctx, "v", func(context.Context) (value, error) {
				return value{N: 1 << 60, M: map[string]any{"é": []any{"x", nil}}, secret: "not kept"}, nil
			})
			if err != nil {
				return 0, err
			}
			none, err := consumer.Step(ctx, "none", func(context.Context) (*value, error) { return nil, nil })
			if err != nil || none != nil {
				return 0, consumer.Fatal(fmt.Errorf("none is %v: %w", none, err))
			}
			if _, err := consumer.Step(ctx, "nothing", func(context.Context) (model.None, error) { return model.None{}, nil }); err != nil {
				return 0, consumer.Fatal(err)
			}
			found <- v
			if task.Attempt == 1 {
				return 0, errNo
			}
			return 1, nil
		})
		sent := a.sendKey("k", 0, retries(1, 0))
		a.awaitStatus(sent.ID, model.StatusSuccess)
		first, second := <-found, <-found
		require.Equal(t, value{N: 1 << 60, M: map[string]any{"é": []any{"x", nil}}}, first)
		require.Equal(t, first, second)
	})
}

func TestAStepIsNotDoneAgainAfterALapse(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var o once
		px, db := a.behind()
		saved := make(chan error, 2)
		handle := func(worker string) handleWork {
			return func(ctx context.Context, task *consumer.Task[int]) (int, error) {
				n, err := consumer.Step(ctx, "one", o.adds("one by "+worker, 7))
				if worker == "heir" {
					return n, err
				}
				saved <- err
				<-ctx.Done()
				_, err = consumer.Step(context.WithoutCancel(ctx), "late", o.adds("late", 8))
				saved <- err
				return 0, err
			}
		}
		a.hire("victim", handle("victim"), through(db))
		sent := a.sendKey("k", 0, a.seconds(2))
		require.NoError(t, receive(t, saved, "the first step"))
		px.Cut()
		a.hire("heir", handle("heir"))
		task := a.awaitStatus(sent.ID, model.StatusSuccess)
		px.Mend()
		require.Equal(t, 7, resultOf(t, task))
		require.ErrorIs(t, receive(t, saved, "the late step"), model.ErrFenced)
		require.Equal(t, []string{"one by victim", "late"}, o.all())
		require.Equal(t, []string{"one"}, namesOf(a.get(sent.ID).Steps))
	})
}

func TestAKilledProcessStepsAreNotDoneAgain(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(3, a.seconds(5))
		victim := a.child("victim", "steps")
		a.awaitMarks("stepped", "victim", 3)
		victim.Kill()
		var o once
		a.hire("heir", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			by, err := consumer.Step(ctx, "who", func(context.Context) (string, error) { o.did(task.TaskID); return "heir", nil })
			if err == nil && by != "victim" {
				err = consumer.Fatal(fmt.Errorf("done by %s", by))
			}
			return task.Args, err
		})
		a.awaitSuccess(ids)
		require.Empty(t, o.all())
	})
}

func TestANameTakenTwiceIsAnErrorThatSaysSo(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		one := func(context.Context) (int, error) { return 1, nil }
		type answer struct{ twice, bad, large, inSession, inTransaction, sentEarlier error }
		answers := make(chan answer, 1)
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			var got answer
			if _, got.sentEarlier = consumer.Step(ctx, "one", one); got.sentEarlier != nil {
				return 0, consumer.Fatal(got.sentEarlier)
			}
			_, got.twice = consumer.Step(ctx, "one", one)
			_, got.bad = consumer.Step(ctx, "one/two", one)
			_, got.large = consumer.Step(ctx, "large", func(context.Context) (string, error) { return strings.Repeat("x", 1<<20), nil })
			session, err := a.db.Client().StartSession()
			if err != nil {
				return 0, err
			}
			defer session.EndSession(ctx)
			_, got.inSession = consumer.Step(mongo.NewSessionContext(ctx, session), "two", one)
			if err := session.StartTransaction(); err != nil {
				return 0, err
			}
			_, got.inTransaction = consumer.Step(mongo.NewSessionContext(ctx, session), "three", one)
			answers <- got
			return 1, nil
		})
		sent := a.sendKey("k", 0)
		a.awaitStatus(sent.ID, model.StatusSuccess)
		got := <-answers
		require.ErrorContains(t, got.twice, "step one occurs twice in this handler")
		require.ErrorIs(t, got.bad, model.ErrInvalid)
		require.ErrorContains(t, got.large, "step large has")
		require.NoError(t, got.inSession)
		require.ErrorContains(t, got.inTransaction, "carries a transaction")
		require.Equal(t, []string{"one", "two"}, namesOf(a.get(sent.ID).Steps))
		_, err := consumer.Step(t.Context(), "outside", one)
		require.ErrorContains(t, err, "does not come from a handler")
	})
}

func TestALocalRetryTakesItsStepsAgain(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var o once
		calls := 0
		a.hire("w", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			n, err := consumer.Step(ctx, "one", o.adds("one", 1))
			if calls++; err == nil && calls < 3 {
				err = errNo
			}
			return n, err
		})
		sent := a.sendKey("k", 0, producer.Retry(model.Retry{Local: &model.LocalRetry{Count: 3, Interval: time.Millisecond}}))
		require.Zero(t, a.awaitStatus(sent.ID, model.StatusSuccess).ErrorCount)
		require.Equal(t, []string{"one"}, o.all())
	})
}

func TestSeveralWorkersEachDoTheirOwnSteps(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var o once
		handle := func(worker string) handleWork {
			return func(ctx context.Context, task *consumer.Task[int]) (int, error) {
				who, err := consumer.Step(ctx, "who", func(context.Context) (string, error) { o.did(worker); return worker, nil })
				if err == nil && who != worker {
					err = consumer.Fatal(fmt.Errorf("%s got the step of %s", worker, who))
				}
				if err == nil && task.Errors < 3 {
					err = errNo
				}
				return 1, err
			}
		}
		for _, w := range []string{"w1", "w2", "w3"} {
			a.hire(w, handle(w))
		}
		sent := a.sendKey("k", 0, producer.ConcurrentWorkers(3), retries(20, 0))
		task := a.awaitStatus(sent.ID, model.StatusSuccess)
		ran := o.all()
		slices.Sort(ran)
		require.Equal(t, []string{"w1", "w2", "w3"}, ran)
		require.Len(t, task.Steps, 3)
	})
}

func TestARetryFromAStepKeepsWhatCameBefore(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var o once
		var mended atomic.Bool
		a.hire("w", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			sum := 0
			for i, name := range []string{"one", "two", "three"} {
				n, err := consumer.Step(ctx, name, o.adds(name, i+1))
				if err != nil {
					return 0, err
				}
				sum += n
			}
			if !mended.Load() {
				return 0, consumer.Fatal(errNo)
			}
			return sum, nil
		})
		sent := a.sendKey("k", 0)
		a.awaitStatus(sent.ID, model.StatusFailure)
		_, err := a.p.RetryFrom(t.Context(), sent.ID, "four", "")
		require.ErrorContains(t, err, "it has one, two, three")
		_, err = a.p.RetryFrom(t.Context(), sent.ID, "no/name", "")
		require.ErrorIs(t, err, model.ErrInvalid)
		mended.Store(true)
		task, err := a.p.RetryFrom(t.Context(), sent.ID, "two", "the second was wrong")
		require.NoError(t, err)
		require.Equal(t, []string{"one"}, namesOf(task.Steps))
		require.Greater(t, task.Generation, sent.Generation)
		task = a.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, 6, resultOf(t, task))
		require.Equal(t, []string{"one", "two", "three", "two", "three"}, o.all())
		before, err := a.store.History.Life(t.Context(), sent.ID, sent.Generation)
		require.NoError(t, err)
		require.Len(t, before.Steps, 3, "the history has the life as it was")
	})
}

// A value that this release's handler cannot read is not the task's fault.
func TestAStepThatDoesNotDecodeGivesTheTaskBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		newer := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			s, err := consumer.Step(ctx, "one", func(context.Context) (string, error) { return "seven", nil })
			if err == nil && task.Attempt == 1 {
				err = errNo
			}
			return len(s), err
		}
		n := a.hire("newer", newer)
		sent := a.sendKey("k", 0, retries(1, 0))
		n.events.await(t, workerevent.Started, 1)
		require.NoError(t, n.stop())
		o := a.hire("older", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			return consumer.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
		})
		given := o.events.await(t, workerevent.Finished, 1)
		require.Equal(t, failkind.Undecodable, given.Outcome)
		require.Contains(t, given.Reason, "the value of step one")
		a.hire("newer", newer)
		task := a.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, 5, resultOf(t, task))
		require.Equal(t, 1, task.ErrorCount)
	})
}
