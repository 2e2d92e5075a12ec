package finish

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// listener is an execution that notes what it hears of its end.
type listener struct {
	completing bool
	heard      chan string
}

func (l *listener) Interval() time.Duration          { return time.Minute }
func (l *listener) Completing() bool                 { return l.completing }
func (l *listener) Leaving() bool                    { return false }
func (l *listener) Ended(after *model.Task)          { l.heard <- "ended: " + string(after.Status) }
func (l *listener) Parked()                          { l.heard <- "parked" }
func (l *listener) Fenced(lifecycle.Outcome, string) { l.heard <- "fenced" }
func (l *listener) Left()                            { l.heard <- "left" }
func (l *listener) TraceID() string                  { return "" }
func (l *listener) Delayed()                         {}

// room is what writes ends and steps, on a database of its own.
func room(t *testing.T) (*Ends, *Steps) {
	t.Helper()
	return roomOn(t, testdb.New(t))
}

func roomOn(t *testing.T, db *mongo.Database) (*Ends, *Steps) {
	t.Helper()
	st, err := store.Open(store.Config{Database: db, Clock: clock.System(), Logger: zerolog.Nop()})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: "w"}), "it reads the clock")
	cfg := Config{
		Store: st, Clock: clock.System(), Log: zerolog.Nop(),
		Health:  health.New(claim.NewTrust(st.Clock, clock.System()), func(error) {}, func() {}),
		Service: t.Context, Beside: func(f func()) { go f() }, Settled: func() {},
	}
	return NewEnds(cfg), NewSteps(cfg)
}

// claimed stores a task that an execution holds, and returns the end of that as a success.
func (w *Ends) claimed(t *testing.T, key string) (*End, *listener) {
	t.Helper()
	now := w.Store.Clock.Now()
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: key}, now)
	eff := lifecycle.EffectiveOf(task, model.Options{})
	task, refused := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, eff, now)
	require.Empty(t, refused)
	_, err := w.Store.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	l := &listener{heard: make(chan string, 1)}
	return &End{Of: l, Claimed: task, ExecID: "e", Options: &eff, Out: lifecycle.Success(bson.RawValue{})}, l
}

func TestTheEndsOfABatchAreToldApart(t *testing.T) {
	w, _ := room(t)
	ended, a := w.claimed(t, "a")
	parked, b := w.claimed(t, "b")
	parked.ParkUntil = w.Store.Clock.Now().Add(time.Hour)
	lost, c := w.claimed(t, "c")
	lost.ExecID = "another"
	late, d := w.claimed(t, "d")
	late.ExecID, late.ParkUntil = "another", parked.ParkUntil
	w.flush([]*End{ended, parked, lost, late})
	require.Equal(t, "ended: Success", <-a.heard)
	require.Equal(t, "parked", <-b.heard)
	require.Equal(t, "fenced", <-c.heard)
	require.Equal(t, "left", <-d.heard, "who completed it from outside was quicker than the park")
}

func TestAnUrgentEndDoesNotWaitForTheOthers(t *testing.T) {
	w, _ := roomOn(t, testdb.Patient(t))
	slow, a := w.claimed(t, "a")
	a.heard = make(chan string) // the batch goes on when somebody listens
	urgent, b := w.claimed(t, "b")
	urgent.Urgent = true
	w.Put(slow)
	w.Put(urgent)
	require.Equal(t, "ended: Success", <-b.heard)
	require.NoError(t, w.urgent.Wait(t.Context()))
	require.Equal(t, 1, w.Len())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.Wait(ctx), context.Canceled, "the other is not told yet")
	require.Equal(t, "ended: Success", <-a.heard)
	require.NoError(t, w.Wait(t.Context()))
	require.Zero(t, w.Len())
}

func TestAnEndThatAnotherWriteCrossedIsDecidedAgain(t *testing.T) {
	w, _ := room(t)
	e, l := w.claimed(t, "a")
	_, _, err := w.Store.Tasks.Change(t.Context(), e.Claimed.ID, func(task *model.Task) (*model.Task, error) {
		crossing := *task
		crossing.Rev++
		crossing.Priority++
		return &crossing, nil
	})
	require.NoError(t, err)
	w.flush([]*End{e})
	require.Equal(t, "ended: Success", <-l.heard)
	require.Greater(t, e.newest().Rev, e.Claimed.Rev)
}

const inTwo = 500 // statements are two commands

// The server refuses one of two commands, and all that follow.
func TestEndsAreToldThoughACommandOfTheirBatchWasRefused(t *testing.T) {
	px := testdb.Behind(t)
	px.Patient()
	w, _ := roomOn(t, testdb.Through(t, px))
	topology, err := w.Store.Topology(t.Context())
	require.NoError(t, err)
	if topology.Sharded {
		t.Skip("a router does not say which statements of a command it carried out")
	}
	ends, told := make([]*End, inTwo), make(chan string, inTwo)
	for i := range ends {
		e, l := w.claimed(t, fmt.Sprint(i))
		e.Out, l.heard = lifecycle.Failed(failkind.Fatal, fmt.Sprint(i)), told
		ends[i] = e
	}
	px.Set(proxy.Rule{Command: "update", Skip: 1, Times: -1, Do: proxy.Refuse, Code: 13})
	w.flush(ends)
	require.Len(t, told, inTwo/2)
	px.Clear()
	for range inTwo {
		require.Equal(t, "ended: Failure", <-told)
	}
}

func TestEndsOfAProcessThatWaitsNoLongerAreLeft(t *testing.T) {
	w, _ := room(t)
	over, end := context.WithCancel(t.Context())
	end()
	w.Service = func() context.Context { return over }
	e, l := w.claimed(t, "a")
	w.flush([]*End{e}) // it gathered while another batch was written
	require.Len(t, l.heard, 1)
	require.Equal(t, "left", <-l.heard)
}

// The server refuses a batch for a reason that is not known, so that its halves are written, and then it is away.
func TestEachEndOfABatchIsLeftWhenTheProcessWaitsNoLonger(t *testing.T) {
	px := testdb.Behind(t)
	w, _ := roomOn(t, testdb.Through(t, px))
	service, end := context.WithCancel(t.Context())
	w.Service = func() context.Context { return service }
	told := make(chan string, 4)
	ends := make([]*End, 4)
	for i := range ends {
		e, l := w.claimed(t, fmt.Sprint(i))
		l.heard, ends[i] = told, e
	}
	px.Set(proxy.Rule{Command: "update", Do: proxy.Refuse, Code: 9})
	px.Set(proxy.Rule{Command: "update", Do: proxy.Pass})
	away := px.Set(proxy.Rule{Command: "update", Do: proxy.CutBefore, Times: -1})
	require.Equal(t, map[string]int{"ended: Success": 2, "left": 2}, flushed(w, ends, told, away, end))
}

// flushed counts what executions hear of their ends. The process stops waiting when the trap springs.
func flushed(w *Ends, ends []*End, told chan string, trap *proxy.Trap, stop func()) map[string]int {
	go func() {
		<-trap.Hit()
		stop()
	}()
	w.flush(ends)
	close(told)
	heard := map[string]int{}
	for what := range told {
		heard[what]++
	}
	return heard
}

// One of two commands was carried out. The other one failed, and so does all that is tried again.
func TestAnEndThatIsWrittenIsToldWhenTheProcessWaitsNoLonger(t *testing.T) {
	const queryPlanKilled, failedToParse = 175, 9 // the first may pass
	for _, code := range []int32{queryPlanKilled, failedToParse} {
		t.Run(fmt.Sprint(code), func(t *testing.T) { tellsWhatIsWritten(t, queryPlanKilled, code) })
	}
}

func tellsWhatIsWritten(t *testing.T, first, then int32) {
	px := testdb.Behind(t)
	px.Patient()
	w, _ := roomOn(t, testdb.Through(t, px))
	service, end := context.WithCancel(t.Context())
	w.Service = func() context.Context { return service }
	ends, told := make([]*End, inTwo), make(chan string, inTwo)
	for i := range ends {
		e, l := w.claimed(t, fmt.Sprint(i))
		e.Out, l.heard = lifecycle.Failed(failkind.Fatal, fmt.Sprint(i)), told
		ends[i] = e
	}
	px.Set(proxy.Rule{Command: "update", Do: proxy.Refuse, Code: first})
	px.Set(proxy.Rule{Command: "update", Do: proxy.Pass})
	again := px.Set(proxy.Rule{Command: "update", Do: proxy.Refuse, Code: then, Times: -1})
	require.Equal(t, map[string]int{"ended: Failure": inTwo / 2, "left": inTwo / 2}, flushed(w, ends, told, again, end))
}

func TestAParkThatARequestToCancelCrossedIsAnEnd(t *testing.T) {
	w, _ := room(t)
	e, l := w.claimed(t, "a")
	e.ParkUntil = w.Store.Clock.Now().Add(time.Hour)
	_, _, err := w.Store.Tasks.Change(t.Context(), e.Claimed.ID, func(task *model.Task) (*model.Task, error) {
		return lifecycle.Cancel(task, "not wanted", *e.Options, w.Store.Clock.Now())
	})
	require.NoError(t, err)
	w.flush([]*End{e})
	require.Equal(t, "ended: Cancelled", <-l.heard)
}

// The budget is spent by the options of the newest claim, which the one that parks does not know.
func TestAParkIsDecidedByTheOptionsOfTheNewestClaim(t *testing.T) {
	w, _ := room(t)
	e, l := w.claimed(t, "a")
	e.ParkUntil = w.Store.Clock.Now().Add(time.Hour)
	_, _, err := w.Store.Tasks.Change(t.Context(), e.Claimed.ID, func(task *model.Task) (*model.Task, error) {
		now := task.WorkerStates[0].ClaimedAt.Add(time.Millisecond)
		after, err := lifecycle.Update(task, lifecycle.Patch{Options: &model.Options{ConcurrentWorkerCount: 2, Retry: &model.Retry{MaxErrors: new(0)}}}, model.Options{}, now)
		require.NoError(t, err)
		after, refused := lifecycle.Claim(after, lifecycle.Claimant{WorkerID: "w2", ExecID: "e2"}, lifecycle.ResolveOptions(after.Options), now)
		require.Empty(t, refused)
		after, err = lifecycle.Finish(after, "e2", lifecycle.Failed(failkind.Error, "no"), lifecycle.EffectiveOf(after, model.Options{}), now, 0)
		require.NoError(t, err)
		after.Rev = task.Rev + 1 // one write
		return after, nil
	})
	require.NoError(t, err)
	w.flush([]*End{e})
	require.Equal(t, "parked", <-l.heard)
	parked, err := w.Store.Tasks.Get(t.Context(), e.Claimed.ID)
	require.NoError(t, err)
	require.Equal(t, model.StatusExecuting, parked.Status)
	require.Zero(t, parked.DueAt, "nobody may run it beside the parked one")
}

func TestAnEndThatATransactionWroteIsNotWrittenAgain(t *testing.T) {
	w, _ := room(t)
	e, l := w.claimed(t, "a")
	require.NoError(t, w.InTransaction(t.Context(), e))
	require.ErrorIs(t, w.InTransaction(t.Context(), e), model.ErrFenced)
	l.completing = true
	failed := *e
	failed.Out = lifecycle.Failed(failkind.Fatal, "what the handler returned does not matter")
	w.flush([]*End{&failed})
	require.Equal(t, "ended: Success", <-l.heard)
}

func TestWhatTheServerNeverTakesBecomesAFailure(t *testing.T) {
	e := &End{Out: lifecycle.Success(bson.RawValue{}), ParkUntil: time.Unix(1, 0)}
	require.True(t, e.shorten(errors.New("too large")))
	require.Equal(t, failkind.Fatal, e.Out.Kind)
	require.Contains(t, e.Out.Reason, "too large")
	require.Zero(t, e.ParkUntil)
	require.True(t, e.shorten(errors.New("too large")))
	require.NotContains(t, e.Out.Reason, "too large", "the reason may be the cause")
	require.False(t, e.shorten(errors.New("too large")))
	given := &End{Out: lifecycle.Failed(failkind.Released, "")}
	require.False(t, given.shorten(errors.New("too large")), "a failure would be more than it was")
}

func TestEndsGatherOnlyWhileManyQuickOnesAreAboutToCome(t *testing.T) {
	require.Zero(t, Linger(quick, false))
	require.Zero(t, Linger(quick-1, true))
	require.Equal(t, gatherTime, Linger(quick, true))
}
