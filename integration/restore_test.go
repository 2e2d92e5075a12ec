package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// restoredNode is the type of the nodes and of the tasks of rules.
var restoredNode = model.NewType[model.None, model.None]("restored.node")

// savedServer is an embedded server whose file is copied and put back while it is stopped. Its clock
// goes where the test wants it.
type savedServer struct {
	t      *testing.T
	server *embedded.Server
	opt    embedded.Options
	ahead  atomic.Int64
}

// newSavedServer begins half an hour before a full hour.
func newSavedServer(t *testing.T) *savedServer {
	t.Helper()
	s := &savedServer{t: t}
	now := time.Now()
	s.ahead.Store(int64(now.Truncate(time.Hour).Add(90 * time.Minute).Sub(now)))
	s.opt = embedded.Options{Path: filepath.Join(t.TempDir(), "data.db"), TTLInterval: -1,
		Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }}
	s.start()
	s.opt.Addr = s.server.Addr()
	t.Cleanup(s.stop)
	return s
}

func (s *savedServer) start() {
	s.t.Helper()
	testdb.Eventually(s.t, "the server starts", func() bool { // somebody may use its port for a moment
		server, err := embedded.Start(s.opt)
		if err != nil {
			s.t.Log(err)
			return false
		}
		s.server = server
		return true
	})
}

func (s *savedServer) stop() { require.NoError(s.t, s.server.Close()) }

// put copies a file over another one.
func (s *savedServer) put(from, to string) {
	s.t.Helper()
	src, err := os.Open(from)
	require.NoError(s.t, err)
	defer func() { _ = src.Close() }()
	dst, err := os.Create(to)
	require.NoError(s.t, err)
	_, err = io.Copy(dst, src)
	require.NoError(s.t, errors.Join(err, dst.Close()))
}

func (s *savedServer) backUp() {
	s.t.Helper()
	s.stop()
	s.put(s.opt.Path, s.opt.Path+".backup")
}

// restore is what an operator does, some hours later.
func (s *savedServer) restore(later time.Duration) {
	s.t.Helper()
	s.stop()
	s.put(s.opt.Path+".backup", s.opt.Path)
	s.ahead.Add(int64(later))
	s.start()
}

// arena is new after each start: its clients read the clock.
func (s *savedServer) arena() *arena {
	s.t.Helper()
	a := arenaOn(s.t, Engine{}, engine.Connect(s.t, s.server.URI()).Database("restored"))
	p, err := producer.New(producer.Config{Database: a.db, SecretKey: secretKey})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, p.Close(context.Background())) })
	a.p, a.admin, a.puller = p, admin.New(p), pull.New(p)
	return a
}

// whole is a process that runs all tasks and decides about all that decides.
func (a *arena) whole(id string, nodes *atomic.Int64) (stop func()) {
	a.t.Helper()
	h := a.hire(id, nil, delivering, func(c *handConfig) {
		c.register = func(c *consumer.Consumer) error {
			return errors.Join(consumer.Handle(c, chaosWork, double),
				consumer.Handle(c, restoredNode, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
					nodes.Add(1)
					return model.None{}, nil
				}),
				consumer.Handle(c, planStep, func(context.Context, *consumer.Task[repeat.Args[planOrder]]) (string, error) { return "", nil }))
		}
	})
	engines := a.deciding()
	return func() {
		engines()
		require.NoError(a.t, h.stop())
	}
}

// deciding is a process that decides about rules, flows and plans.
func (a *arena) deciding() (stop func()) {
	a.t.Helper()
	rules, flows, plans := a.planners()
	stops := []func(){a.runEngine(rules.Run), a.runEngine(flows.Run), a.runEngine(plans.Run)}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func (a *arena) planners() (*periodic.Periodic, *flow.Flows, *plan.Plans) {
	a.t.Helper()
	r, err := periodic.New(periodic.Config{Database: a.db})
	require.NoError(a.t, err)
	f, err := flow.New(flow.Config{Database: a.db})
	require.NoError(a.t, err)
	p, err := plan.New(plan.Config{Database: a.db})
	require.NoError(a.t, err)
	return r, f, p
}

func TestARestoredDatabaseGoesOnWhereTheBackupWasMade(t *testing.T) {
	t.Parallel()
	s, taking, refusing, ctx := newSavedServer(t), newReceiver(t), newReceiver(t), t.Context()
	a := s.arena()
	rules, flows, plans := a.planners()

	// Before the backup one callback is delivered, and one is refused.
	refusing.answers(func(_ int, _ heard, w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	deliverer := a.hire("deliverer", double, delivering)
	delivered := a.sendKey("delivered", 1, producer.Callback(taking.to())).ID
	undelivered := a.sendKey("undelivered", 1, producer.Callback(refusing.to())).ID
	a.awaitStatus(delivered, model.StatusSuccess)
	a.awaitStatus(undelivered, model.StatusCompleted)
	a.await(lifecycle.DeliveryID(a.get(undelivered)), "refused", func(task *model.Task) bool { return task != nil && task.ErrorCount > 0 })
	require.NoError(t, deliverer.stop())

	// A task runs, a flow is at its second node, a stream at its first, and a plan before its second step.
	running := a.sendKey("running", 21).ID
	held := a.fetchUntil(1, pull.FetchRequest{})[0]
	stop := a.deciding()
	fl, err := flows.Start(ctx, graph.Spec{Nodes: []graph.NodeSpec{{ID: "a", Type: restoredNode.Name()}, {ID: "b", Type: restoredNode.Name(), After: []string{"a"}}}})
	require.NoError(t, err)
	node := pull.FetchRequest{Types: []string{restoredNode.Name()}}
	_, err = a.puller.Complete(ctx, a.fetchUntil(1, node)[0].Handle, nil)
	require.NoError(t, err)
	second := a.fetchUntil(1, node)[0]
	_, err = flows.Append(ctx, "restored", "1", graph.NodeSpec{ID: "one", Type: restoredNode.Name()}, graph.NodeSpec{ID: "two", Type: restoredNode.Name()})
	require.NoError(t, err)
	a.fetchUntil(1, node)
	p, err := plans.Publish(ctx, planOf(1, 0, "", "").spec)
	require.NoError(t, err)
	step := pull.FetchRequest{Types: []string{planStep.Name()}}
	_, err = a.puller.Complete(ctx, a.fetchUntil(1, step)[0].Handle, "")
	require.NoError(t, err)
	a.fetchUntil(1, step)
	// Rules of each way to catch up have their first tick in half an hour, and one has an open run.
	modes := []schedule.CatchUpMode{schedule.CatchUpNone, schedule.CatchUpCompact, schedule.CatchUpFull}
	ids := map[schedule.CatchUpMode]string{}
	for _, mode := range modes {
		rule, err := rules.Create(ctx, schedule.Spec{Name: "hourly-" + string(mode), Cron: "0 0 * * * *", Type: restoredNode.Name(), CatchUp: schedule.CatchUp{Mode: mode}})
		require.NoError(t, err)
		_, err = rules.Enable(ctx, rule.ID, 0)
		require.NoError(t, err)
		ids[mode] = rule.ID
	}
	open, err := rules.Trigger(ctx, ids[schedule.CatchUpNone], periodic.TriggerOptions{Request: "open"})
	require.NoError(t, err)
	stop()
	s.backUp()

	// All of it goes on for three hours, and ends.
	s.ahead.Add(int64(3 * time.Hour))
	s.start()
	a = s.arena()
	refusing.answers(nil)
	var nodes atomic.Int64
	stop = a.whole("first", &nodes)
	a.awaitAll(fl.ID, p.ID, running, undelivered)
	a.awaitRuns(ids[schedule.CatchUpFull], 3)
	require.True(t, a.sendKey("after", 1).Created)
	a.awaitStatus(model.TaskID("", chaosWork.Name(), "after"), model.StatusSuccess)
	stop()
	a.sendKey("later", 1)
	late := a.fetchUntil(1, pull.FetchRequest{})[0]
	calls := len(refusing.all())

	// Two hours later somebody puts the backup back.
	s.restore(2 * time.Hour)
	a = s.arena()
	rules, _, plans = a.planners()
	_, err = a.puller.Complete(ctx, late.Handle, 1)
	require.ErrorIs(t, err, model.ErrNotFound, "nobody knows what was sent after the backup")
	require.True(t, a.sendKey("later", 1).Created, "who sends it again has it run again")
	require.Equal(t, model.StatusExecuting, a.get(running).Status)
	nodes.Store(0)
	a.whole("second", &nodes)
	a.awaitAll(fl.ID, p.ID, running, undelivered)
	task := a.get(running)
	require.Equal(t, 42, resultOf(t, task))
	require.Equal(t, 1, task.LapseCount, "its lease had lapsed")
	require.Equal(t, "second", task.WorkerStates[1].WorkerID)
	for _, handle := range []string{held.Handle, second.Handle} {
		_, err = a.puller.Complete(ctx, handle, 0)
		require.ErrorIs(t, err, model.ErrFenced, "its task was taken over")
	}
	results, err := plans.Results(ctx, p.ID, nil, 10)
	require.NoError(t, err)
	var states []string
	for _, x := range results {
		states = append(states, x.State)
	}
	require.Equal(t, []string{stepplan.StateOK, stepplan.StateError, stepplan.StateOK}, states, "the first step, the lapse of the second, and its end")

	// The callback that was delivered before the backup is not repeated. The other is, with its id.
	require.Len(t, taking.all(), 1)
	require.Len(t, refusing.all(), calls+1)
	for _, h := range refusing.all() {
		require.Equal(t, refusing.all()[0].id, h.id)
	}

	// Five ticks were missed. Each has one record, as the rule wants it.
	a.awaitRuns(ids[schedule.CatchUpFull], 5)
	a.awaitRuns(ids[schedule.CatchUpCompact], 1)
	a.awaitRuns(ids[schedule.CatchUpNone], 0)
	require.Equal(t, map[schedule.CatchUpMode]int64{schedule.CatchUpNone: 5, schedule.CatchUpCompact: 4, schedule.CatchUpFull: 0}, map[schedule.CatchUpMode]int64{
		schedule.CatchUpNone: a.skipped(ids[schedule.CatchUpNone]), schedule.CatchUpCompact: a.skipped(ids[schedule.CatchUpCompact]), schedule.CatchUpFull: a.skipped(ids[schedule.CatchUpFull]),
	})
	awaitTrue(t, func() string {
		run, err := rules.GetRun(ctx, open)
		require.NoError(t, err)
		if run.Status != schedule.RunSuccess {
			return "the open run to succeed; it is " + string(run.Status)
		}
		return ""
	})
	require.EqualValues(t, 1+2+1+5+1, nodes.Load(), "b, the stream, the open run, and the ticks: nothing ran twice")
}

// awaitAll waits until a flow, a stream, a plan and tasks have ended.
func (a *arena) awaitAll(flowID, planID string, tasks ...string) {
	a.t.Helper()
	_, flows, plans := a.planners()
	a.awaitSuccess(tasks)
	awaitTrue(a.t, func() string {
		f, err := flows.Get(a.t.Context(), flowID)
		require.NoError(a.t, err)
		p, err := plans.Get(a.t.Context(), planID)
		require.NoError(a.t, err)
		nodes, err := flows.Nodes(a.t.Context(), "restored/1")
		require.NoError(a.t, err)
		ended := 0
		for _, n := range nodes {
			if n.Status == graph.NodeSuccess {
				ended++
			}
		}
		if f.Status != graph.StatusFinish || p.Status != repeat.StatusFinish || ended == 0 || ended < len(nodes) {
			return "the flow (" + string(f.Status) + "), the stream and the plan (" + string(p.Status) + ") to end"
		}
		return ""
	})
}

// awaitRuns waits until so many ticks of a rule have succeeded, and no more.
func (a *arena) awaitRuns(rule string, n int) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		done := 0
		for _, run := range a.records(rule) {
			if run.Status == schedule.RunSuccess && !run.Manual {
				done++
			}
		}
		require.LessOrEqual(a.t, done, n)
		if done < n {
			return fmt.Sprintf("%d ticks to succeed; the records are %+v", n, a.records(rule))
		}
		return ""
	})
}

func (a *arena) records(rule string) (out []schedule.Run) {
	a.t.Helper()
	rules, _, _ := a.planners()
	runs, err := rules.Runs(a.t.Context(), rule, periodic.RunFilter{}, nil, 1000)
	require.NoError(a.t, err)
	for _, r := range runs {
		out = append(out, *r)
	}
	return out
}

// skipped is how many ticks were skipped because nobody decided them in time.
func (a *arena) skipped(rule string) (n int64) {
	a.t.Helper()
	for _, run := range a.records(rule) {
		if run.Status == schedule.RunSkipped {
			require.Equal(a.t, "missed", run.Reason)
			n += max(run.Count, 1)
		}
	}
	return n
}

// What other systems saw after the backup is greater than what a restored task begins with. It is not,
// once the database was prepared.
func TestFencingTokensRiseAcrossARestoreOnceTheDatabaseIsPrepared(t *testing.T) {
	t.Parallel()
	s, ctx := newSavedServer(t), t.Context()
	a := s.arena()
	handles := make(chan string, 1)
	parker := a.hire("parker", parks(handles, tomorrow()))
	parked := a.sendKey("parked", 1).ID
	handle := receive(t, handles, "a parked execution")
	a.await(parked, "parked", func(task *model.Task) bool { return task.WorkerStates[0].Parked })
	require.NoError(t, parker.stop())
	running := a.sendKey("running", 1).ID
	held := a.fetchUntil(1, pull.FetchRequest{Lease: 10 * time.Hour})[0]
	waiting := a.sendKey("waiting", 1, retries(100, time.Millisecond)).ID
	later := a.sendKey("held", 1, producer.Held()).ID
	again, err := producer.Send(ctx, a.p, restoredNode, model.None{}, producer.Key("again"))
	require.NoError(t, err)
	s.backUp()

	s.start()
	a = s.arena()
	var seen model.Token // the greatest that another system was shown
	for range 5 {
		f := a.fetchUntil(1, pull.FetchRequest{})[0]
		require.Greater(t, f.Token.String(), seen.String())
		seen = f.Token
		_, err := a.puller.Fail(ctx, f.Handle, "again", producer.Failure{})
		require.NoError(t, err)
	}
	ofAgain := pull.FetchRequest{Types: []string{restoredNode.Name()}}
	_, err = a.puller.Fail(ctx, a.fetchUntil(1, ofAgain)[0].Handle, "over", producer.Failure{Fatal: true})
	require.NoError(t, err)
	_, err = a.p.Retry(ctx, again.ID, "a new life")
	require.NoError(t, err)
	ofNewLife := a.fetchUntil(1, ofAgain)[0].Token
	require.Greater(t, ofNewLife.Generation, again.Generation)

	s.restore(time.Hour)
	a = s.arena()
	require.Less(t, a.fetchUntil(1, pull.FetchRequest{})[0].Token.String(), seen.String(), "as it is, another system refuses the new execution")

	s.restore(0)
	a = s.arena()
	before := a.get(waiting)
	sum, err := upkeep.Restored{Store: a.store, Dry: true}.All(ctx)
	require.NoError(t, err)
	require.Equal(t, upkeep.RestoredSum{Tasks: 5, Released: 1, Parked: 1}, sum)
	require.Equal(t, before, a.get(waiting), "a dry run changes nothing")
	for n, released := range []int{1, 0} { // it may be repeated
		sum, err = upkeep.Restored{Store: a.store}.All(ctx)
		require.NoError(t, err)
		require.Equal(t, upkeep.RestoredSum{Tasks: 5, Released: released, Parked: 1}, sum, n)
	}
	require.Equal(t, model.StatusWait, a.get(later).Status)
	task := a.get(running)
	require.Equal(t, model.StatusNew, task.Status, "it need not wait for its lapse")
	require.Zero(t, task.LapseCount)
	require.Zero(t, task.ErrorCount)
	given := map[string]model.Token{running: held.Token, waiting: seen}
	for _, f := range a.fetchUntil(2, pull.FetchRequest{Max: 2}) {
		require.Contains(t, given, f.Task.ID)
		require.Greater(t, f.Token.String(), given[f.Task.ID].String())
	}
	require.Greater(t, a.fetchUntil(1, ofAgain)[0].Token.String(), ofNewLife.String(), "a life that the backup does not have gave it out")
	_, err = a.puller.Complete(ctx, held.Handle, 1)
	require.ErrorIs(t, err, model.ErrFenced)
	_, err = a.puller.Complete(ctx, handle, 1)
	require.NoError(t, err, "the completion of a parked execution may still come")
}
