package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// elect gives the database another primary.
func (w *world) elect() {
	w.hello(func(hello bson.M) { hello["electionId"] = bson.ObjectID{1} })
}

// Nothing had lapsed until the election, so nothing but what was seen at the start tells of
// it: the server has the same address as before, and answers as always.
func TestAnIdleWorkerNoticesAnElectionBeforeItPreemptsForTheFirstTime(t *testing.T) {
	w := newWorld(t, nil)
	id := w.owned("a", twoSeconds)
	w.watch(time.Second)
	w.hello(elected)
	w.watch(1100 * time.Millisecond)
	left := w.scan()
	w.requireLeftAlone(id)
	require.Equal(t, 500*time.Millisecond+claim.Notice, left.Wait)
	require.True(t, w.c.health.Trust.WantsClock(), "the new primary has a clock of its own")

	w.hello(func(hello bson.M) { hello["electionId"] = bson.ObjectID{1} }) // and once more
	w.watch(left.Wait)
	require.Equal(t, left, w.scan(), "it begins anew")
	w.watch(left.Wait)
	require.Zero(t, w.scan())
	w.requireTakenOver(id)
}

// start makes the worker one that starts now: it knows nothing of the database.
func (w *world) start() {
	w.t.Helper()
	w.c.health.Trust = claim.NewTrust(w.c.store.Clock, w.c.cfg.Clock)
	require.NoError(w.t, w.c.prepare(w.t.Context()))
	w.c.lapses.Begin(w.t.Context())
}

// requireANewWorkerTakesOver has a worker start a minute later, which takes the task over at once.
func (w *world) requireANewWorkerTakesOver(id string) {
	w.t.Helper()
	w.pass(time.Minute)
	w.start()
	require.Zero(w.t, w.scan())
	w.requireTakenOver(id)
}

func TestAWorkerThatStartsTakesOverAtOnceFromAFleetThatDied(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	id := w.owned("a", twoSeconds)
	w.requireANewWorkerTakesOver(id)
}

func TestAWorkerThatStartsAfterAnElectionWaitsAsOthersDo(t *testing.T) {
	const wait = 500*time.Millisecond + claim.Notice
	w := newWorld(t, nil)
	w.start()
	id := w.owned("a", twoSeconds)
	w.pass(time.Minute)
	w.elect()
	w.start()
	require.Equal(t, wait, w.scan().Wait)
	w.requireLeftAlone(id)

	const later = time.Second
	w.watch(later)
	w.start() // and one more, which learns from the first when that was
	require.InDelta(t, wait-later, w.scan().Wait, float64(10*time.Millisecond))
	w.requireLeftAlone(id)
	w.watch(wait - later)
	require.Zero(t, w.scan())
	w.requireTakenOver(id)
}

func TestAWorkerThatRunsTellsThoseThatStartOfAnElection(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	id := w.owned("a", twoSeconds)
	w.pass(time.Minute)
	w.elect()
	w.scan() // it notices
	w.requireANewWorkerTakesOver(id)
}

func TestAWorkerThatWasIdleTellsThoseThatStartOfAnElection(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.elect()
	w.c.health.Report(errAway)
	w.c.health.Report(nil)
	require.True(t, woken(w.c.lapses.Hinted()))
	w.scan()
	w.pass(10 * time.Second)
	id := w.owned("a", twoSeconds)
	w.requireANewWorkerTakesOver(id)

	hellos := w.px.Set(proxy.Rule{Command: "hello", Contains: "world", Times: -1}) // not the driver's own
	w.scan()
	require.Zero(t, hellos.Sprung(), "without an outage nobody asks")
}

func TestAPrimaryThatCouldNotBeNotedIsNotedLater(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	id := w.owned("a", twoSeconds)
	w.pass(time.Minute)
	w.elect()
	refused := w.px.Set(proxy.Rule{Command: "findAndModify", Collection: "control", Do: proxy.Refuse, Code: 13})
	w.scan()
	require.Equal(t, 1, refused.Sprung())
	w.scan()
	w.requireANewWorkerTakesOver(id)
}

func TestAnElectionWhileAWorkerPreparesDoesNotEndIt(t *testing.T) {
	w := newWorld(t, nil)
	w.elect()
	notes := w.px.Set(proxy.Rule{Command: "findAndModify", Collection: "control", Times: -1, Do: proxy.Refuse, Code: 13})
	require.NoError(t, w.c.prepare(t.Context()))
	require.Zero(t, notes.Sprung(), "it is noted beside the work")
}

func TestWithoutANameOfThePrimaryAStartIsNoAnswerOfTheDatabase(t *testing.T) {
	w := newWorld(t, asRouter)
	w.c.health.Report(errAway)
	w.c.lapses.Begin(t.Context())
	require.True(t, w.c.health.Down())
}

// newHeir is a worker of a primary that nobody has noted. began is closed when it has taken over the one
// task, whose lease lapsed long ago.
func newHeir(t *testing.T) (c *Consumer, began chan struct{}) {
	t.Helper()
	db := testdb.New(t)
	setup, _ := prepared(t, db)
	long := setup.store.Clock.Now().Add(-time.Hour)
	task := put(t, setup, "a", func(t *model.Task) {
		at(long)(t)
		twoSeconds(t)
	})
	after, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "owner", ExecID: "owner"}, *setup.handlerOf(task.Type).effective(task), long)
	require.Empty(t, no)
	written, err := setup.store.Tasks.Writes(t.Context(), []store.Write{{Before: task, After: after}}, 0)
	require.NoError(t, err)
	require.True(t, written[0].Applied)
	c, err = New(Config{Database: db, WorkerID: "finder"})
	require.NoError(t, err)
	began = make(chan struct{})
	require.NoError(t, Handle(c, model.NewType[int, int](quietType), func(context.Context, *Task[int]) (int, error) {
		close(began)
		return 0, nil
	}))
	return c, began
}

func TestRunDoubtsAPrimaryThatNobodyHasNoted(t *testing.T) {
	c, began := newHeir(t)
	started, ended := time.Now(), make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	<-began
	require.GreaterOrEqual(t, time.Since(started), claim.Notice)
	require.NoError(t, c.Stop(t.Context()))
	require.NoError(t, <-ended)
}

func TestDrainWaitsAfterAnElectionAndThenLeavesNothing(t *testing.T) {
	c, _ := newHeir(t)
	started := time.Now()
	did, err := c.Drain(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 1, did.Succeeded)
	require.GreaterOrEqual(t, time.Since(started), claim.Notice)
}

func TestDrainThatSkipsTimeWaitsForNoElection(t *testing.T) {
	c, _ := newHeir(t)
	did, err := c.Drain(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, 1, did.Succeeded)
	require.LessOrEqual(t, c.Stats().Scans, int64(3), "it does not observe the owner of the lease")
}
