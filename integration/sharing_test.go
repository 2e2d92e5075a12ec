package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestHigherPrioritiesRunFirstAndEqualOnesInTheOrderOfTheirTimes(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(200, 60)
		start := time.Now().Add(-time.Hour)
		items := make([]producer.Item[int], n)
		for i := range items {
			items[i] = producer.Item[int]{Args: i, Options: []producer.Option{
				producer.Priority(i * 7 % 10), producer.At(start.Add(time.Duration(i*13%n) * time.Second))}}
		}
		sent, err := producer.SendMany(t.Context(), a.p, chaosWork, items)
		require.NoError(t, err)
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(x, y int) int {
			if px, py := x*7%10, y*7%10; px != py {
				return py - px
			}
			return x*13%n - y*13%n
		})
		want := make([]string, n)
		for i, x := range order {
			want[i] = sent[x].ID
		}
		var mu sync.Mutex
		var ran []string
		late := newLateClaims(a)
		a.hire("w", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, task.TaskID)
			return 0, nil
		}, narrow(1), late.watched)
		a.awaitCount(model.StatusSuccess, int64(n))
		late.requireOrder(want, ran)
	})
}

// The seed: "排序条件: priority最高, 优先被指定worker_id的": the greatest priority first, and then
// those that name the worker, however late they became due.
func TestTasksThatNameTheWorkerGoFirstWithinTheirPriority(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const each = 20
		sent := map[string][]string{}
		start := time.Now().Add(-time.Hour)
		send := func(what string, priority int, due time.Time, opts ...producer.Option) {
			items := make([]producer.Item[int], each)
			for i := range items {
				items[i] = producer.Item[int]{Args: i, Options: append([]producer.Option{producer.Key(fmt.Sprintf("%s %02d", what, i)),
					producer.Priority(priority), producer.At(due.Add(time.Duration(i) * time.Second))}, opts...)}
			}
			stored, err := producer.SendMany(t.Context(), a.p, chaosWork, items)
			require.NoError(t, err)
			for _, s := range stored {
				sent[what] = append(sent[what], s.ID)
			}
		}
		late, mine := start.Add(30*time.Minute), producer.Workers("w", "another")
		send("4 anybody", 4, start)
		send("5 anybody", 5, start)
		send("5 mine", 5, late, mine)
		send("6 anybody", 6, late)
		send("4 mine", 4, late, mine)
		want := slices.Concat(sent["6 anybody"], sent["5 mine"], sent["5 anybody"], sent["4 mine"], sent["4 anybody"])
		var mu sync.Mutex
		var ran []string
		claims := newLateClaims(a)
		a.hire("w", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, task.TaskID)
			return 0, nil
		}, narrow(1), claims.watched)
		a.awaitCount(model.StatusSuccess, int64(len(want)))
		claims.requireOrder(want, ran)
	})
}

// While a worker has a backlog, it looks for such tasks apart, each second.
func TestATaskThatNamesABusyWorkerDoesNotWaitForItsBacklog(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const backlog = 2000
		a.backlog(backlog, time.Millisecond)
		begun, mineAt := make(chan struct{}), make(chan int, 1)
		ran := 0
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if ran++; ran == 1 {
				close(begun)
			}
			if task.Key == "mine" {
				mineAt <- ran
			}
			// Each takes its time, so that a second is far less than the backlog.
			clock.Pause(ctx, 20*time.Millisecond)
			return 0, nil
		}, narrow(1))
		<-begun
		a.sendAs("mine", "", "", "", producer.Workers("w"))
		select {
		case n := <-mineAt:
			require.Less(t, n, backlog/2)
		case <-time.After(chaosPatience):
			require.Fail(t, "it waits for the backlog")
		}
	})
}

// width measures how many handlers are in it at once.
type width struct {
	mu        sync.Mutex
	now, most int
}

func (w *width) enter() (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	w.most = max(w.most, w.now)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}
}

func TestALimitOfATypeIsNeverExceededAndOthersUseTheRest(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(200, 50)
		limited := model.NewType[int, int]("limited")
		items := make([]producer.Item[int], n)
		for i := range items {
			items[i] = producer.Item[int]{Args: i, Options: []producer.Option{producer.Priority(9)}}
		}
		_, err := producer.SendMany(t.Context(), a.p, limited, items)
		require.NoError(t, err)
		others := a.send(n)
		var narrowest, all width
		g := newGate()
		a.hire("w", nil, narrow(8), func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				err := consumer.Handle(c, limited, func(ctx context.Context, task *consumer.Task[int]) (int, error) {
					defer narrowest.enter()()
					defer all.enter()()
					return 0, g.enter(ctx, task)
				}, consumer.MaxConcurrency(3))
				if err != nil {
					return err
				}
				return consumer.Handle(c, chaosWork, func(ctx context.Context, task *consumer.Task[int]) (int, error) {
					defer all.enter()()
					return double(ctx, task)
				})
			}
		})
		g.awaitInside(t, 3)
		a.awaitSuccess(others) // while the limited type is at its limit, and first in the queue
		close(g.open)
		a.awaitCountOf(limited.Name(), model.StatusSuccess, int64(n))
		require.Equal(t, 3, narrowest.most)
		require.LessOrEqual(t, all.most, 8)
	})
}

func TestMiddlewareRunsFromTheOutsideInAndBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var mu sync.Mutex
		var log []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}
		sends := func(name string) producer.Middleware {
			return func(next producer.SendFunc) producer.SendFunc {
				return func(ctx context.Context, drafts []*producer.Draft) ([]producer.Sent, error) {
					note("%s before the send", name)
					drafts[0].Category += name
					defer note("%s after the send", name)
					return next(ctx, drafts)
				}
			}
		}
		runs := func(name string) consumer.Middleware {
			return func(next consumer.Handler) consumer.Handler {
				return func(ctx context.Context, x *consumer.Execution) (any, error) {
					note("%s before the handler", name)
					result, err := next(ctx, x)
					note("%s after the handler: %v %v", name, result, err)
					return result, err
				}
			}
		}
		p, err := producer.New(producer.Config{Database: a.db, Middleware: []producer.Middleware{sends("outer"), sends("inner")}})
		require.NoError(t, err)
		h := a.hire("w", func(context.Context, *consumer.Task[int]) (int, error) {
			note("handler")
			return 7, nil
		}, func(c *handConfig) { c.Middleware = []consumer.Middleware{runs("outer"), runs("inner")} })
		sent, err := producer.Send(t.Context(), p, chaosWork, 1)
		require.NoError(t, err)
		require.NoError(t, p.Close(t.Context()))
		a.awaitStatus(sent.ID, model.StatusSuccess)
		require.NoError(t, h.stop())
		sending, running := log[:0:0], log[:0:0]
		for _, line := range log { // the worker may be quicker than the way back out of the send
			if len(line) > 8 && line[len(line)-8:] == "the send" {
				sending = append(sending, line)
			} else {
				running = append(running, line)
			}
		}
		require.Equal(t, []string{"outer before the send", "inner before the send", "inner after the send", "outer after the send"}, sending)
		require.Equal(t, []string{"outer before the handler", "inner before the handler", "handler",
			"inner after the handler: 7 <nil>", "outer after the handler: 7 <nil>"}, running)
		require.Equal(t, "outerinner", a.get(sent.ID).Category)
	})
}

func TestTenantsDoNotSeeEachOthersKeys(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		north, south := a.sendKey("k", 1, producer.Tenant("north")), a.sendKey("k", 2, producer.Tenant("south"))
		nobody := a.sendKey("k", 3)
		require.True(t, north.Created && south.Created && nobody.Created)
		_, err := a.p.Cancel(t.Context(), north.ID, "")
		require.NoError(t, err)

		var mu sync.Mutex
		ran := map[string]int{}
		report := a.drain(func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[task.Tenant] = task.Args
			return double(ctx, task)
		})
		require.Equal(t, 2, report.Succeeded)
		require.Equal(t, map[string]int{"south": 2, "": 3}, ran)

		for tenant, want := range map[string]string{"north": north.ID, "south": south.ID, model.NoTenant: nobody.ID} {
			page, err := a.admin.Find(t.Context(), admin.Filter{Tenant: tenant}, 10, "")
			require.NoError(t, err)
			require.Len(t, page.Tasks, 1, tenant)
			require.Equal(t, want, page.Tasks[0].ID)
		}
	})
}

func TestPrefixesShareADatabaseWithoutMeeting(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		p, err := producer.New(producer.Config{Database: a.db, Prefix: "b_"})
		require.NoError(t, err)
		sent, err := producer.Send(t.Context(), p, chaosWork, 5, producer.Key("k"))
		require.NoError(t, err)
		require.Zero(t, a.drain(double).Executions)
		own := a.sendKey("k", 6)
		require.True(t, own.Created)
		a.hire("w", double, func(c *handConfig) { c.Prefix = "b_" })
		result, err := producer.Await(t.Context(), p, chaosWork, sent)
		require.NoError(t, err)
		require.Equal(t, 10, result)
		require.NoError(t, p.Close(t.Context()))
		require.Equal(t, model.StatusNew, a.get(own.ID).Status)
	})
}

// inTransaction runs f in a transaction of the caller's and ends it as f says.
func (a *arena) inTransaction(f func(ctx context.Context) (commit bool)) {
	a.t.Helper()
	if !a.e.Transactions {
		a.t.Skip("this engine has no transactions")
	}
	session, err := a.db.Client().StartSession()
	require.NoError(a.t, err)
	defer session.EndSession(context.Background())
	_, err = session.WithTransaction(a.t.Context(), func(ctx context.Context) (any, error) {
		if f(ctx) {
			return nil, nil
		}
		return nil, session.AbortTransaction(ctx)
	})
	require.NoError(a.t, err)
}

func (a *arena) exists(id string) bool {
	a.t.Helper()
	n, err := a.db.Collection("tasks").CountDocuments(a.t.Context(), bson.M{"_id": id})
	require.NoError(a.t, err)
	return n == 1
}

func TestASendInATransactionIsThereWhenItCommits(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		require.NoError(t, a.db.CreateCollection(t.Context(), "users"))
		h := a.hire("w", double)
		a.awaitSuccess(a.send(1)) // it works
		var sent producer.Sent
		a.inTransaction(func(ctx context.Context) bool {
			_, err := a.db.Collection("users").InsertOne(ctx, bson.M{"_id": "ann"})
			require.NoError(t, err)
			sent, err = producer.Send(ctx, a.p, chaosWork, 4, producer.Key("ann"))
			require.NoError(t, err)
			require.True(t, sent.Created)
			require.False(t, a.exists(sent.ID), "nobody sees it before the commit")
			return true
		})
		result, err := producer.Await(t.Context(), a.p, chaosWork, sent)
		require.NoError(t, err)
		require.Equal(t, 8, result)
		require.Len(t, h.events.all(workerevent.Started), 2)
	})
}

func TestASendInATransactionIsGoneWhenItAborts(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var inside producer.Sent
		var many []producer.Sent
		a.inTransaction(func(ctx context.Context) bool {
			var err error
			inside, err = producer.Send(ctx, a.p, chaosWork, 1)
			require.NoError(t, err)
			many, err = producer.SendMany(ctx, a.p, chaosWork, []producer.Item[int]{{Args: 2}, {Args: 3}})
			require.NoError(t, err)
			return false
		})
		require.False(t, a.exists(inside.ID))
		require.False(t, a.exists(many[0].ID) || a.exists(many[1].ID))
		require.Zero(t, a.drain(double).Executions)
	})
}

func TestASendOutsideTheTransactionStaysWhenThatAborts(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		if e.Name == "secantusd" {
			t.Skip("its writes wait until no transaction is open anywhere")
		}
		a := newArena(t, e)
		var inside, outside producer.Sent
		a.inTransaction(func(ctx context.Context) bool {
			var err error
			inside, err = producer.Send(ctx, a.p, chaosWork, 1)
			require.NoError(t, err)
			outside, err = producer.Send(ctx, a.p, chaosWork, 2, producer.OutsideTransaction())
			require.NoError(t, err)
			return false
		})
		require.False(t, a.exists(inside.ID))
		require.Equal(t, 1, a.drain(double).Succeeded)
		require.Equal(t, 4, resultOf(t, a.get(outside.ID)))
	})
}
