package consumer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// world is a server and a worker's machine whose clocks a test sets by hand.
type world struct {
	t  *testing.T
	px *proxy.Proxy
	c  *Consumer

	mu     sync.Mutex
	server time.Time
	wall   time.Time
	mono   time.Duration
}

type worldMachine struct{ *world }

func (m worldMachine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

func (m worldMachine) Monotonic() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mono
}

func (w *world) serverTime() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.server
}

// pass lets time pass everywhere.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.wall, w.mono = w.server.Add(d), w.wall.Add(d), w.mono+d
}

// newWorld has a worker that is prepared and whose loops do not run. hello changes what the
// server says of itself; nil = nothing. No command runs out of its time.
func newWorld(t *testing.T, hello func(bson.M)) *world {
	t.Helper()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	w := &world{t: t, server: noon, wall: noon.Add(time.Hour), mono: time.Minute}
	server, err := embedded.Start(embedded.Options{Now: w.serverTime})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	w.px, err = proxy.Start(server.URI())
	require.NoError(t, err)
	t.Cleanup(w.px.Close)
	w.px.Patient()
	w.hello(hello)
	client, err := mongo.Connect(options.Client().ApplyURI(w.px.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	w.c, err = New(Config{Database: client.Database("world"), Clock: worldMachine{w}, WorkerID: "finder"})
	require.NoError(t, err)
	require.NoError(t, Handle(w.c, model.NewType[int, int](quietType), func(ctx context.Context, _ *Task[int]) (int, error) {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}))
	require.NoError(t, w.c.start(t.Context()))
	require.NoError(t, w.c.prepare(t.Context()))
	t.Cleanup(func() {
		for _, x := range w.c.held.each() {
			x.cancel(ErrShutdown)
		}
		w.c.handlersWG.Wait()
		w.c.writeLast(context.Background())
		w.c.writeOutcomes(context.Background())
		w.c.endService()
		w.c.late.Wait()
		w.c.leases.Wait()
	})
	return w
}

func (w *world) hello(change func(bson.M)) {
	if change == nil {
		w.px.Rewrite(nil)
		return
	}
	w.px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		doc := bson.M{}
		if command != "hello" || bson.Unmarshal(answer, &doc) != nil {
			return answer
		}
		change(doc)
		changed, err := bson.Marshal(doc)
		if err != nil {
			return answer
		}
		return changed
	})
}

// asRouter is how mongos answers: it names no primary and no election.
func asRouter(hello bson.M) {
	hello["msg"] = "isdbgrid"
	for _, k := range []string{"setName", "setVersion", "hosts", "me", "primary", "electionId"} {
		delete(hello, k)
	}
}

// elected is how a server answers that was elected once more.
func elected(hello bson.M) { hello["electionId"] = bson.NewObjectID() }

func leased(ping, timeout time.Duration) func(*model.Task) {
	return func(t *model.Task) { t.Options.PingInterval, t.Options.WorkerTimeout = ping, timeout }
}

// twoSeconds is what an election may cost.
var twoSeconds = leased(500*time.Millisecond, 2*time.Second)

// owned stores a task that another worker executes.
func (w *world) owned(key string, change func(*model.Task)) string {
	w.t.Helper()
	task := put(w.t, w.c, key, change)
	eff := *w.c.handlerOf(task.Type).effective(task)
	after, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "owner", ExecID: "owner-" + key}, eff, w.c.store.Clock.Now())
	require.Empty(w.t, no)
	written, err := w.c.store.Tasks.Writes(w.t.Context(), []store.Write{{Before: task, After: after}}, 0)
	require.NoError(w.t, err)
	require.True(w.t, written[0].Applied)
	return task.ID
}

func (w *world) scan() claim.LeftAlone {
	w.t.Helper()
	left, err := w.c.lapses.Scan(w.t.Context())
	require.NoError(w.t, err)
	return left
}

// watch lets time pass as the loops do: the database is asked often enough, and the clock
// is read.
func (w *world) watch(d time.Duration) {
	w.t.Helper()
	for ; d > 0; d -= 200 * time.Millisecond {
		w.pass(min(d, 200*time.Millisecond))
		_, err := w.c.lapses.Next(w.t.Context())
		require.NoError(w.t, err)
		if w.c.health.Trust.WantsClock() || w.c.store.Clock.Age() >= store.HeartbeatInterval {
			require.NoError(w.t, w.c.presence.Beat(w.t.Context()))
		}
	}
}

func (w *world) requireTakenOver(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		require.Equal(w.t, "finder", w.get(id).WorkerStates[1].WorkerID)
	}
}

func (w *world) requireLeftAlone(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		require.Len(w.t, w.get(id).WorkerStates, 1)
		require.Positive(w.t, lifecycle.OpenExecutions(w.get(id)))
	}
}

func (w *world) get(id string) *model.Task {
	w.t.Helper()
	task, err := w.c.store.Tasks.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return task
}

func TestALapsedLeaseIsTakenOverByWhoHasWatched(t *testing.T) {
	w := newWorld(t, nil)
	id := w.owned("a", twoSeconds)
	w.watch(2100 * time.Millisecond)
	require.Zero(t, w.scan())
	w.requireTakenOver(id)
}

// While the takeover was under way, no fetch looked for tasks of the type.
func TestAPlaceThatALostTakeoverHadIsLookedForAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.c.handlerOf(quietType).limit = 1
	id := w.owned("a", twoSeconds)
	w.watch(2100 * time.Millisecond)
	found, err := w.c.store.Tasks.Lapsed(t.Context(), []string{quietType}, &store.LapsedFrom{}, 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
	_, _, err = w.c.store.Tasks.Change(t.Context(), id, func(now *model.Task) (*model.Task, error) {
		after := *now
		after.Rev++
		return &after, nil
	})
	require.NoError(t, err)
	woken(w.c.wake.look)
	changed, left, err := w.c.preempt(t.Context(), found)
	require.NoError(t, err)
	require.Zero(t, left)
	require.Equal(t, 1, changed, "somebody else has changed it")
	require.Zero(t, w.c.held.count().all)
	require.True(t, woken(w.c.wake.look))
}

func TestBehindARouterAWorkerThatWasIdleWatchesBeforeItPreempts(t *testing.T) {
	w := newWorld(t, asRouter)
	require.Empty(t, w.c.health.Trust.Primary())
	short, long := w.owned("a", twoSeconds), w.owned("b", nil)
	w.pass(10 * time.Second) // nobody knows what happened to the shards
	left := w.scan()
	w.requireLeftAlone(short, long)
	require.Equal(t, 500*time.Millisecond+claim.Notice, left.Wait)
	w.watch(left.Wait)
	w.scan()
	w.requireTakenOver(short)
	w.requireLeftAlone(long)

	w.watch(11 * time.Second)
	w.pass(10 * time.Second) // less than what costs an owner a lease of half a minute
	require.NoError(t, w.c.presence.Beat(t.Context()))
	w.scan()
	w.requireTakenOver(long)
}

// The clock of the database goes forward by a minute, so that every lease has lapsed. The
// owners do not know until they read it.
func TestAfterAJumpOfTheDatabasesClockOwnersAreGivenTheTimeToHearOfIt(t *testing.T) {
	w := newWorld(t, nil)
	short, long := w.owned("a", twoSeconds), w.owned("b", leased(10*time.Second, time.Hour))
	w.watch(time.Second)
	w.mu.Lock()
	w.server = w.server.Add(time.Minute)
	w.mu.Unlock()
	require.NoError(t, w.c.presence.Beat(t.Context()))
	left := w.scan()
	w.requireLeftAlone(short)
	require.Equal(t, store.MaxClockAge+500*time.Millisecond+claim.Notice, left.Wait)

	w.c.health.Report(errAway) // and the database is away for a moment
	w.watch(left.Wait - time.Second)
	require.Positive(t, w.scan().Wait, "a later trouble does not shorten the wait")
	w.requireLeftAlone(short)
	w.watch(time.Second)
	w.scan()
	w.requireTakenOver(short)
	w.requireLeftAlone(long)
}

// hold makes the worker claim a task. Its handler runs until its context ends, and does not begin after a stop.
func (w *world) hold(key string, change func(*model.Task)) *execution {
	w.t.Helper()
	put(w.t, w.c, key, change)
	_, err := w.c.fetch(w.t.Context())
	require.NoError(w.t, err)
	xs := w.c.held.each()
	require.Len(w.t, xs, 1)
	require.Eventually(w.t, func() bool { return xs[0].begun() || w.c.isStopping() }, testdb.Patience, time.Millisecond)
	return xs[0]
}

// While a machine sleeps only its wall clock goes on. The lease of the first ping after it
// must count from the database's time, not from what was estimated before.
func TestAPingAfterTheMachineSleptCountsFromTheDatabasesTime(t *testing.T) {
	w, x := untilConfirmed(t, twoSeconds, func(w *world, x *execution) {
		w.mu.Lock()
		w.server, w.wall = w.server.Add(time.Hour), w.wall.Add(time.Hour)
		w.mu.Unlock()
		require.Negative(t, x.lease.Trusted(w.c.cfg.Clock))
		w.c.leases.Confirm(t.Context(), []*execution{x})
	})
	require.Positive(t, x.lease.Trusted(w.c.cfg.Clock))
	require.WithinDuration(t, w.serverTime().Add(2*time.Second), w.get(x.task.ID).WorkerStates[0].PingExpireTime, 10*time.Millisecond)
	require.NoError(t, x.stopped)
}

func TestWhoseLeaseTheDatabaseDoesNotConfirmGivesItUp(t *testing.T) {
	w := newWorld(t, nil)
	x := w.hold("a", twoSeconds)
	w.mu.Lock()
	w.wall = w.wall.Add(time.Hour)
	w.mu.Unlock()
	w.px.Cut()
	w.guardUntil(func() bool { return x.cause() != nil })
	require.ErrorIs(t, x.cause(), ErrLeaseLost)
	w.px.Mend()
}

// The process stood still while a task waited for its slot, and no timer has noticed yet.
func TestAHandlerDoesNotBeginAfterItsLease(t *testing.T) {
	w := newWorld(t, nil)
	w.c.requestStop() // nothing starts by itself
	waits := w.hold("a", twoSeconds)
	w.mu.Lock()
	w.server, w.wall = w.server.Add(time.Hour), w.wall.Add(time.Hour)
	w.mu.Unlock()
	x := w.c.held.next(w.c.cfg.Clock.Monotonic())
	require.Same(t, waits, x)
	w.c.run(x)
	require.NoError(t, w.c.ends.Wait(t.Context()))
	require.False(t, x.begun())
	state := w.get(x.task.ID).WorkerStates[0]
	require.Equal(t, failkind.Released, state.FailKind)
	require.True(t, state.Unstarted)
}

// guardUntil runs the guard alone: no ping of the loop comes before it.
func (w *world) guardUntil(done func() bool) {
	w.t.Helper()
	ctx, end := context.WithCancel(w.t.Context())
	over := make(chan struct{})
	go func() {
		w.c.leases.GuardLoop(ctx)
		close(over)
	}()
	require.Eventually(w.t, done, testdb.Patience, 5*time.Millisecond)
	end()
	<-over
}

// cause is why the execution was told to stop; nil = it was not.
func (x *execution) cause() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stopped
}

// No ping extends a lease that ends at the deadline.
func TestADeadlineIsJudgedByTheDatabasesClockWhereTheWallClockJumped(t *testing.T) {
	w, x := untilConfirmed(t, func(t *model.Task) {
		leased(10*time.Second, 30*time.Second)(t)
		t.Options.ExecutionTimeout = 20 * time.Second
	}, func(w *world, x *execution) {
		w.mu.Lock()
		w.wall = w.wall.Add(time.Hour)
		w.mu.Unlock()
		require.True(t, x.lease.Bounded())
		w.c.leases.Confirm(t.Context(), []*execution{x})
	})
	require.Equal(t, 20*time.Second, x.lease.Trusted(w.c.cfg.Clock))
	w.mu.Lock()
	w.server, w.wall = w.server.Add(time.Hour), w.wall.Add(time.Hour)
	w.mu.Unlock()
	w.c.leases.Confirm(t.Context(), []*execution{x})
	require.Negative(t, x.lease.Trusted(w.c.cfg.Clock))
}

// untilConfirmed lets the worker of a new world claim a task and ask whether its lease still holds. It begins anew
// where the answer took most of the second that the database has for it.
func untilConfirmed(t *testing.T, change func(*model.Task), ask func(*world, *execution)) (*world, *execution) {
	t.Helper()
	for first := time.Now(); time.Since(first) < testdb.Patience; {
		w := newWorld(t, nil)
		x := w.hold("a", change)
		began := time.Now()
		ask(w, x)
		if time.Since(began) < time.Second/2 {
			return w, x
		}
	}
	require.FailNow(t, "it always takes long to ask")
	panic("not reached")
}

func TestTheGuardAsksTheDatabaseBeforeItBelievesAWallClockThatJumped(t *testing.T) {
	_, x := untilConfirmed(t, twoSeconds, func(w *world, x *execution) {
		w.mu.Lock()
		w.wall = w.wall.Add(time.Hour)
		w.mu.Unlock()
		w.guardUntil(func() bool { return x.cause() != nil || x.lease.Trusted(w.c.cfg.Clock) > 0 })
	})
	require.NoError(t, x.cause())
}
