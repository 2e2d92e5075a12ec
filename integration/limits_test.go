package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// Limits that hold over a fleet of processes. What is checked is what handlers say of when they
// began, by the clock of the one machine that they run on, and what the tasks themselves say of
// their executions.

// limitedWork takes as many milliseconds as its argument says. Its result is when its handler
// began, in microseconds since 1970.
var limitedWork = model.NewType[int, int]("limited.work")

func limitedHandler(ctx context.Context, task *consumer.Task[int]) (int, error) {
	began := time.Now()
	select {
	case <-time.After(time.Duration(task.Args) * time.Millisecond): // the work itself
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return int(began.UnixMicro()), nil
}

// TestLimitsChild is no test: it is what a child process runs.
func TestLimitsChild(t *testing.T) {
	if os.Getenv(childRole) != "limits" {
		t.Skip("only in a child process")
	}
	hearParent()
	client, err := engine.Client(os.Getenv(childURI))
	require.NoError(t, err)
	upkeep.Hurry(upkeep.Pace{Busy: 500 * time.Millisecond, Idle: time.Second, Grace: time.Second})
	c, err := consumer.New(consumer.Config{Database: client.Database(os.Getenv(childDB)), WorkerID: os.Getenv(childName), Concurrency: 20})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, limitedWork, limitedHandler))
	require.NoError(t, c.Run(t.Context()))
}

// limitedChild starts a worker process, which is killed at the end of the test.
func (a *arena) limitedChild(name string) *fleet.Process {
	a.t.Helper()
	return a.process("TestLimitsChild", name, "limits", a.e.URI)
}

func (a *arena) limit(change func(*model.TaskType)) *model.TaskType {
	a.t.Helper()
	typ := model.TaskType{Code: limitedWork.Name()}
	change(&typ)
	stored, err := a.admin.PutType(a.t.Context(), typ)
	require.NoError(a.t, err)
	return stored
}

// sendLimited stores n tasks of so many milliseconds.
func (a *arena) sendLimited(n, millis int, options func(i int) []producer.Option) []string {
	a.t.Helper()
	items := make([]producer.Item[int], n)
	for i := range items {
		items[i] = producer.Item[int]{Args: millis, Options: options(i)}
	}
	sent, err := producer.SendMany(a.t.Context(), a.p, limitedWork, items)
	require.NoError(a.t, err)
	ids := make([]string, n)
	for i, s := range sent {
		ids[i] = s.ID
	}
	return ids
}

func plain(int) []producer.Option { return nil }

// spans are the executions of tasks that have ended, in the order of their claims.
func (a *arena) spans(ids []string) []model.WorkerState {
	a.t.Helper()
	tasks, err := a.store.Tasks.ByIDs(a.t.Context(), ids)
	require.NoError(a.t, err)
	var all []model.WorkerState
	for _, t := range tasks {
		all = append(all, t.WorkerStates...)
	}
	slices.SortFunc(all, func(x, y model.WorkerState) int { return x.ClaimedAt.Compare(y.ClaimedAt) })
	return all
}

// ran is an execution that ended a task, or whose worker was killed.
type ran struct {
	model.WorkerState
	began   time.Time // its handler, by this machine's clock
	through time.Time // when that had worked for as long as it had to; it returned later
	ended   time.Time // as the task says
}

// moment is by how much a process may be wrong about the database's time.
const moment = 200 * time.Millisecond

// runs are the executions of tasks that have all succeeded. One whose worker was killed has
// left no time by this machine's clock: it was open from a moment after its claim to a moment
// before somebody took the task over.
func (a *arena) runs(ids []string) []ran {
	a.t.Helper()
	tasks, err := a.store.Tasks.ByIDs(a.t.Context(), ids)
	require.NoError(a.t, err)
	var all []ran
	for _, t := range tasks {
		var micros, millis int64
		require.NoError(a.t, codec.DecodeValue(t.Result, &micros))
		require.NoError(a.t, codec.DecodeValue(t.Args, &millis))
		began := time.UnixMicro(micros)
		i := slices.IndexFunc(t.WorkerStates, func(w model.WorkerState) bool { return !w.SuccessTime.IsZero() })
		require.GreaterOrEqual(a.t, i, 0, inWords(t))
		all = append(all, ran{t.WorkerStates[i], began, began.Add(time.Duration(millis) * time.Millisecond), t.WorkerStates[i].SuccessTime})
		for _, w := range t.WorkerStates {
			if w.FailKind == failkind.Lapsed {
				all = append(all, ran{w, w.ClaimedAt.Add(moment), w.FailTime.Add(-moment), w.FailTime})
			}
		}
	}
	return all
}

// openAtOnce are two bounds of how many executions were open at once at most. sure is how many
// handlers were at work, by the clock that they share: whatever is late makes it less. maybe
// goes by what the tasks say, in which each process has its own estimate of the database's
// time: whatever is late makes it more.
func openAtOnce(runs []ran) (sure, maybe int) {
	for _, w := range runs {
		s, m := openBeside(w, runs)
		sure, maybe = max(sure, s), max(maybe, m)
	}
	return sure, maybe
}

// openBeside are how many were open when one of them began, itself included.
func openBeside(w ran, runs []ran) (sure, maybe int) {
	for _, o := range runs {
		if !o.began.After(w.began) && o.through.After(w.began) {
			sure++
		}
		if !o.ClaimedAt.After(w.ClaimedAt) && o.ended.After(w.ClaimedAt) {
			maybe++
		}
	}
	return sure, maybe
}

func TestOfATypeWithMaxRunningNeverMoreAreOpenAtOnce(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.limit(func(typ *model.TaskType) { typ.MaxRunning = 5 })
		ids := a.sendLimited(200, 150, func(int) []producer.Option { return []producer.Option{a.seconds(1)} })
		workers := map[string]*fleet.Process{}
		for i := range 4 {
			name := fmt.Sprint("w", i)
			workers[name] = a.limitedChild(name)
		}
		for i, at := range []int{15, 45, 75} { // kills, each in the midst of the work
			a.awaitDone(ids, at)
			holder := a.anyHolder(workers)
			workers[holder].Kill()
			delete(workers, holder)
			name := fmt.Sprint("heir", i)
			workers[name] = a.limitedChild(name)
		}
		began := time.Now()
		a.awaitEach(ids, "Success", func(t *model.Task) bool { return t.Status == model.StatusSuccess })
		executions := len(a.spans(ids))
		sure, maybe := openAtOnce(a.runs(ids))
		t.Logf("%d executions, %d to %d at once, the last part took %v", executions, sure, maybe, time.Since(began))
		require.LessOrEqual(t, sure, 5, "more than allowed")
		require.GreaterOrEqual(t, maybe, 5, "never as many as allowed")
		require.Greater(t, executions, len(ids), "no kill met an execution")
	})
}

// A limit that is set while more than it allows are executing, and lowered afterwards, holds
// from when the processes have heard of it.
func TestALimitThatChangesWhileTasksRunCountsThem(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		for i := range 4 {
			a.limitedChild(fmt.Sprint("w", i))
		}
		const heard = 3 * time.Second
		var before []string
		for i := range 16 { // while they end, one by one, others begin
			before = append(before, a.sendLimited(1, 3500+100*i, plain)...)
		}
		a.awaitEach(before, "begun", func(t *model.Task) bool { return t.Status != model.StatusNew })
		set := a.limit(func(typ *model.TaskType) { typ.MaxRunning = 4 })
		ids := a.awaitReached(4, set.UpdatedAt.Add(heard))
		lowered := a.limit(func(typ *model.TaskType) { typ.MaxRunning, typ.Version = 2, set.Version })
		ids = append(ids, a.awaitReached(2, lowered.UpdatedAt.Add(heard))...)
		a.awaitSuccess(append(before, ids...))

		runs := a.runs(append(before, ids...))
		for _, c := range []struct {
			said     string
			limit    int
			from, to time.Time
		}{
			{"set", 4, set.UpdatedAt.Add(heard), lowered.UpdatedAt},
			{"lowered", 2, lowered.UpdatedAt.Add(heard), time.Time{}},
		} {
			began, sure, maybe := openAfter(runs, c.from, c.to)
			t.Logf("%d began after the limit was %s, with %d to %d open", began, c.said, sure, maybe)
			require.Positive(t, began)
			require.LessOrEqual(t, sure, c.limit)
			require.GreaterOrEqual(t, maybe, c.limit)
		}
	})
}

// openAfter are how many executions began between two times, and how many were open at most
// at one of those beginnings, see [openAtOnce].
func openAfter(runs []ran, from, to time.Time) (began, sure, maybe int) {
	for _, w := range runs {
		if w.ClaimedAt.Before(from) || !to.IsZero() && w.ClaimedAt.After(to) {
			continue
		}
		began++
		s, m := openBeside(w, runs)
		sure, maybe = max(sure, s), max(maybe, m)
	}
	return began, sure, maybe
}

// anyHolder waits until one of the workers, which live, has an open execution, and is its id.
// Which one it is nobody can say before: who ends a task gets its permit first.
func (a *arena) anyHolder(workers map[string]*fleet.Process) (holder string) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		var tasks []*model.Task
		cur, err := a.db.Collection("tasks").Find(a.t.Context(), bson.D{{Key: "status", Value: model.StatusExecuting}})
		require.NoError(a.t, err)
		require.NoError(a.t, cur.All(a.t.Context(), &tasks))
		for _, t := range tasks {
			for _, w := range t.WorkerStates {
				if lifecycle.Open(&w) && workers[w.WorkerID] != nil {
					holder = w.WorkerID
					return ""
				}
			}
		}
		return "no worker that lives has an execution"
	})
	return holder
}

// awaitDone waits until so many of the tasks have succeeded.
func (a *arena) awaitDone(ids []string, n int) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		if done := len(a.succeeded(ids)); done < n {
			return fmt.Sprintf("%d of %d", done, n)
		}
		return ""
	})
}

// succeeded are those of the tasks that have succeeded.
func (a *arena) succeeded(ids []string) (done []string) {
	a.t.Helper()
	tasks, err := a.store.Tasks.ByIDs(a.t.Context(), ids)
	require.NoError(a.t, err)
	for _, id := range ids {
		if tasks[id].Status == model.StatusSuccess {
			done = append(done, id)
		}
	}
	return done
}

// awaitReached sends tasks that may begin from a time on until several rounds have succeeded and as many of them
// were open at once as a limit allows. It returns all that it has sent.
func (a *arena) awaitReached(limit int, from time.Time) (ids []string) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		done := a.succeeded(ids)
		_, _, maybe := openAfter(a.runs(done), from, time.Time{})
		if maybe >= limit && len(done) >= 6*limit {
			return ""
		}
		if len(ids)-len(done) < 4*limit {
			ids = append(ids, a.sendLimited(8*limit, 300, func(int) []producer.Option { return []producer.Option{producer.At(from)} })...)
		}
		return fmt.Sprintf("%d succeeded, and %d of a limit of %d were open at once", len(done), maybe, limit)
	})
	return ids
}

func TestOfEachLimitKeyOneRunsAtATimeAndNoneStarves(t *testing.T) {
	onEnginesInRealTime(t, inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const customers, workers = 50, 4
		options := func(i int) []producer.Option {
			key := i % customers
			if i >= 3*customers {
				key = 0 // who has much to do stands before nobody
			}
			return []producer.Option{producer.LimitKey(fmt.Sprint("customer ", key))}
		}
		ids := a.sendLimited(3*customers+30, 60, options)
		for i := range workers {
			a.limitedChild(fmt.Sprint("w", i))
		}
		a.awaitSuccess(ids)
		byKey := map[string][]string{}
		tasks, err := a.store.Tasks.ByIDs(t.Context(), ids)
		require.NoError(t, err)
		var busy time.Time
		for id, task := range tasks {
			key := task.Options.LimitKey
			if byKey[key] = append(byKey[key], id); key == "customer 0" {
				busy = latest(busy, task.FinishedAt)
			}
		}
		after := 0
		for _, task := range tasks {
			if task.FinishedAt.After(busy) {
				after++
			}
		}
		require.Len(t, byKey, customers)
		for key, of := range byKey {
			sure, _ := openAtOnce(a.runs(of))
			require.Equal(t, 1, sure, "of %s", key)
		}
		require.LessOrEqual(t, after, workers, "tasks that ended after those of customer 0: a process may have stood still with one")
		sure, maybe := openAtOnce(a.runs(ids))
		t.Logf("%d to %d at once", sure, maybe)
	}))
}

func TestWhatIsFetchedIsWithinTheLimits(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.limit(func(typ *model.TaskType) { typ.MaxRunning = 2 })
		a.sendLimited(4, 0, plain)
		request := pull.FetchRequest{Types: []string{limitedWork.Name()}, Max: 10, WorkerID: "puller"}
		got := a.fetch(request)
		require.Len(t, got, 2)
		require.Empty(t, a.fetch(request), "as many are open as may be")
		_, err := a.p.Complete(t.Context(), got[0].Handle, 0)
		require.NoError(t, err)
		awaitTrue(t, func() string {
			if len(a.fetch(request)) != 1 {
				return "the permit of the one that was completed"
			}
			return ""
		})
		require.Empty(t, a.fetch(request))
	})
}

func TestOfALimitKeyOneIsFetchedAtATime(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.sendLimited(3, 0, func(int) []producer.Option { return []producer.Option{producer.LimitKey("c")} })
		request := pull.FetchRequest{Types: []string{limitedWork.Name()}, Max: 10, WorkerID: "puller"}
		seen := map[string]bool{}
		for range ids {
			var got []pull.Fetched
			awaitTrue(t, func() string {
				if got = a.fetch(request); len(got) == 0 {
					return "the next of the key"
				}
				return ""
			})
			require.Len(t, got, 1)
			for _, id := range ids {
				if task := a.get(id); id != got[0].Task.ID && !seen[id] {
					require.True(t, lifecycle.HeldBack(task), inWords(task))
					require.Equal(t, model.StatusNew, task.Status)
				}
			}
			seen[got[0].Task.ID] = true
			_, err := a.p.Complete(t.Context(), got[0].Handle, 0)
			require.NoError(t, err)
		}
		require.Len(t, seen, 3)
	})
}

// A consumer with a backlog passes its permits on from task to task. A worker that only fetches asks for one, as other
// consumers do.
func TestAFetchGetsAPermitBesideAConsumerWithABacklog(t *testing.T) {
	onEngines(t, inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const most, millis = 3, 100
		a.limit(func(typ *model.TaskType) { typ.MaxRunning = most })
		backlog := a.sendLimited(20*most*1000/millis, millis, plain) // of twenty seconds
		c, err := consumer.New(consumer.Config{Database: a.db, WorkerID: "w", ShutdownTimeout: time.Second})
		require.NoError(t, err)
		require.NoError(t, consumer.Handle(c, limitedWork, limitedHandler))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Run(ctx) // it ends with its context
		}()
		t.Cleanup(func() { cancel(); <-done })
		a.awaitDone(backlog, most)
		named := a.sendLimited(1, millis, func(int) []producer.Option { return []producer.Option{producer.Workers("py-1")} })
		var got []pull.Fetched
		for len(got) == 0 {
			time.Sleep(250 * time.Millisecond) // as the REST API asks for a worker that waits
			got = a.fetch(pull.FetchRequest{WorkerID: "py-1", Types: []string{limitedWork.Name()}})
		}
		require.Equal(t, named[0], got[0].Task.ID)
		tasks, err := a.store.Tasks.ByIDs(t.Context(), backlog)
		require.NoError(t, err)
		left := 0
		for _, task := range tasks {
			if !task.Status.Ended() {
				left++
			}
		}
		t.Logf("%d of %d were left", left, len(backlog))
		if e.virtual() { // else it may be slow
			require.Greater(t, left, len(backlog)/2, "it waited for the end of the backlog")
		}
	}))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
