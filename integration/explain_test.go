package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// No query on the hot path scans or sorts. The commands that the store really sends are
// caught on their way, and the server explains each, with tens of thousands of tasks
// around that it must not look at.
func TestNoQueryOnTheHotPathScansOrSorts(t *testing.T) {
	onEnginesAtFullSize(t, slowInLong(func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		x.crowd(e.Of(10_000, 3_000))
		const batch = 50
		ctx, st, now := t.Context(), x.store, x.store.Clock.Now()
		// A poll when there is nothing: a seek or two for each audience and priority.
		x.explain("find", func() {
			seen, err := st.Tasks.Peek(ctx, store.Peek{Due: []string{"hot", "hot.too"}, Executing: []string{"hot.too", "cold"}, WorkerID: "me", Until: now.Add(time.Minute)})
			require.NoError(t, err)
			require.Zero(t, seen)
		}).within(t, 25, 0)
		mine := x.insert(batch, "hot", nil)
		x.explain("find", func() {
			seen, err := st.Tasks.Peek(ctx, store.Peek{Due: []string{"hot"}, Executing: []string{"hot"}, WorkerID: "me", Until: now.Add(time.Minute)})
			require.NoError(t, err)
			require.NotZero(t, seen)
		}).within(t, 10, 2)
		due := x.explain("find", func() {
			found, err := st.Tasks.Due(ctx, store.DueQuery{Types: []string{"hot", "hot.too", "cold"}, WorkerID: "me", Limit: batch})
			require.NoError(t, err)
			require.Len(t, found, batch)
		})
		due.within(t, batch+20, batch) // six ranges are entered
		x.insert(20, "hot", func(task *model.Task) {
			task.Options.ConcurrentWorkerCount, task.Audience = 2, []string{lifecycle.AudienceMany}
		})
		x.explain("find", func() {
			_, err := st.Tasks.DueMany(ctx, store.DueQuery{Types: []string{"hot"}, WorkerID: "me", Limit: batch})
			require.NoError(t, err)
		}).within(t, 25, 20)
		x.explain("find", func() {
			_, err := st.Tasks.DueMany(ctx, store.DueQuery{Types: []string{"hot", "hot.too"}, WorkerID: "me", Limit: batch, Own: true})
			require.NoError(t, err)
		}).within(t, 27, 20)
		x.explain("find", func() {
			_, err := st.Tasks.NextDue(ctx, store.NextQuery{Types: []string{"hot", "hot.too"}, WorkerID: "me", After: now, Until: now.Add(time.Minute)})
			require.NoError(t, err)
		}).within(t, 2*3*10*2+5, 1)
		x.explain("find", func() {
			_, err := st.Tasks.NextDue(ctx, store.NextQuery{Types: []string{"hot", "hot.too"}, WorkerID: "me", Priorities: []int{5}, After: now, Until: now.Add(time.Minute)})
			require.NoError(t, err)
		}).within(t, 2*3*2, 1)
		x.explain("find", func() {
			_, _, err := st.Tasks.NextLapse(ctx, []string{"hot", "hot.too"})
			require.NoError(t, err)
		}).within(t, 8, 2)

		claims, executing := x.claim(mine)
		x.explain("update", func() { x.write(claims) }).within(t, 2*batch, batch)
		x.explain("find", func() {
			_, err := st.Tasks.Lapsed(ctx, []string{"hot", "hot.too"}, &store.LapsedFrom{}, batch)
			require.NoError(t, err)
		}).within(t, 8, 1)
		pings := make([]store.Ping, len(executing))
		for i, task := range executing {
			pings[i] = store.Ping{ID: task.ID, ExecID: "mine", Until: now.Add(time.Hour)}
		}
		x.explain("update", func() {
			lost, err := st.Tasks.Pings(ctx, pings, 0)
			require.NoError(t, err)
			require.Empty(t, lost)
		}).within(t, 2*batch, batch)
		x.explain("find", func() {
			_, err := st.Tasks.ByIDs(ctx, ids(executing))
			require.NoError(t, err)
		}).within(t, 2*batch, batch)
		x.explain("update", func() { x.write(finish(t, executing)) }).within(t, 2*batch, batch)
		x.explain("findAndModify", func() { x.takeOver() }).within(t, 2, 1)
	}))
}

// A look that goes on behind those that were left alone walks over none of them but those of its first moment.
func TestALookAtLapsedLeasesThatGoesOnWalksOnlyItsPart(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		const batch, same = 50, 5
		began, n := x.store.Clock.Now().Add(-time.Hour), 0
		for _, typ := range []string{"hot", "hot.too"} {
			x.insert(10*batch, typ, func(task *model.Task) {
				task.LapseAt = began.Add(time.Duration(n/same) * time.Millisecond)
				n++
			})
		}
		var from store.LapsedFrom
		page := func() {
			found, err := x.store.Tasks.Lapsed(t.Context(), []string{"hot", "hot.too"}, &from, batch)
			require.NoError(t, err)
			require.Len(t, found, batch)
			for _, task := range found {
				from.Leave(task)
			}
		}
		page()
		page()
		x.explain("find", page).within(t, batch+same+4, batch+same+2)
	})
}

// A query for due tasks walks only the range and the priorities that it names, whatever lies
// before and between. None of its forms makes the server sort.
func TestADueQueryWalksOnlyItsPartOfTheQueue(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		n := e.Of(5_000, 1_000)
		now := x.store.Clock.Now()
		of := func(priority int, before time.Duration, named ...string) func(*model.Task) {
			return func(task *model.Task) {
				task.Priority, task.DueAt = priority, now.Add(-before)
				if len(named) > 0 {
					task.Options.SpecificWorkerIDs, task.Audience = named, named
				}
			}
		}
		for _, typ := range []string{"hot", "hot.too"} {
			x.insert(n, typ, of(2, time.Hour))
			x.insert(n, typ, of(5, 2*time.Hour))
			x.insert(n, typ, of(9, 2*time.Hour))
		}
		const batch = 50
		x.insert(batch, "hot", of(5, time.Minute))
		x.insert(batch, "hot", of(6, time.Minute))
		x.insert(3, "hot", of(5, time.Second, "me"))
		x.insert(n, "hot", of(5, time.Hour, "somebody-else"))
		due := func(found int, q store.DueQuery) explained {
			return x.explain("find", func() {
				q.Types, q.WorkerID, q.Limit = []string{"hot", "hot.too"}, "me", batch
				got, err := x.store.Tasks.Due(t.Context(), q)
				require.NoError(t, err)
				require.Len(t, got, found)
			})
		}
		from := now.Add(-time.Minute)
		due(batch, store.DueQuery{Priorities: []int{5}, From: from}).within(t, batch+10, batch+2)
		due(batch, store.DueQuery{Priorities: []int{5}}).within(t, batch+10, batch+2)
		due(batch, store.DueQuery{Priorities: []int{5, 6}, From: from}).within(t, batch+30, batch+2)
		due(batch, store.DueQuery{Priorities: []int{2, 6}, From: from}).within(t, batch+30, batch+2)
		due(batch, store.DueQuery{From: from}).within(t, batch+40, batch+2)
		due(3, store.DueQuery{Own: true, Priorities: []int{5}, From: from}).within(t, 3+10, 3)
		empty := 10
		if e.Name == "secantusd" {
			empty++ // it counts a key past each range
		}
		due(0, store.DueQuery{Priorities: []int{5}, From: now.Add(time.Hour)}).within(t, empty, 0)
		x.explain("find", func() {
			seen, err := x.store.Tasks.Peek(t.Context(), store.Peek{Due: []string{"hot.too"}, WorkerID: "me", Priorities: []int{5, 6}, From: from, Until: now.Add(time.Hour)})
			require.NoError(t, err)
			require.False(t, seen.Due)
		}).within(t, 20, 0)
		x.explain("find", func() {
			tail, err := x.store.Tasks.LastDue(t.Context(), "hot", lifecycle.AudienceAll, 5, now.Add(-2*time.Hour))
			require.NoError(t, err)
			require.Equal(t, from, tail)
		}).within(t, 2, 1)
	})
}

// The questions of a look go out as one aggregate, which cannot name an index for each of them.
func TestEachQuestionOfALookReadsAnIndex(t *testing.T) {
	onEnginesAtFullSize(t, slowInLong(func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		ctx, st, now := t.Context(), x.store, x.store.Clock.Now()
		p, err := periodic.New(periodic.Config{Database: x.db})
		require.NoError(t, err)
		n := e.Of(2_000, 500)
		for i := range n {
			r, err := p.Create(ctx, schedule.Spec{Name: strconv.Itoa(i), Cron: "* * * * *", Type: "tick", StartAt: now.Add(time.Duration(i+1) * time.Hour)})
			require.NoError(t, err)
			_, err = p.Enable(ctx, r.ID, 0)
			require.NoError(t, err)
		}
		x.insert(n, "hot", nil)
		looks := func(at time.Time, due int) explained {
			return x.explain("aggregate", func() {
				var found int
				var next time.Time
				none := func() { t.Error("nothing is planned and nothing waits") }
				questions := append([]store.Question{st.Control.Question(func(store.ControlDoc) {})}, st.Rules.Questions(store.Look[*schedule.Rule]{
					Now: at, Limit: 100, Due: func(*schedule.Rule) { found++ }, Unread: func(store.Unreadable) { t.Error("all can be read") },
					Next: func(at time.Time) { next = at }, LeftBefore: at, Left: none, Waiting: none,
				})...)
				questions = append(questions, st.Tasks.OutboxQuestions(lifecycle.OutcomePeriodic, time.Time{}, at, 100, func(*store.OutboxLife, bool) { t.Error("nothing has ended") })...)
				require.NoError(t, st.Ask(ctx, "looking", questions...))
				require.Equal(t, due, found)
				require.Positive(t, next.Sub(at))
			})
		}
		looks(now.Add(-time.Minute), 0).within(t, 10, 2)
		looks(now.Add(20*time.Hour+5*time.Minute), 20).within(t, 20+10, 20+2)
		looks(now.Add(200*time.Hour), 100).within(t, 100+10, 100+2)
	}))
}

// The same holds for flows: those that are due, and the nodes of streams that are to be linked.
func TestEachQuestionAboutStreamsReadsAnIndex(t *testing.T) {
	onEnginesAtFullSize(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		ctx, st, now := t.Context(), x.store, x.store.Clock.Now()
		n := e.Of(2_000, 500)
		var nodes []*graph.Node
		var all []store.Reservation
		for i := range n {
			id := fmt.Sprintf("s/%04d", i)
			all = append(all, store.Reservation{ID: id, Key: id, Scene: "s", Group: id, N: 2, Now: now, DueAt: now.Add(time.Duration(i+1) * time.Hour), LookUntil: now})
			for no := range int64(2) {
				nodes = append(nodes, &graph.Node{ID: fmt.Sprintf("%s/%d", id, no), FlowID: id, Status: graph.NodeInit, No: no + 1})
			}
		}
		for some := range slices.Chunk(all, 20) { // a slow machine may have no time for more in one command
			last, refused, err := st.Flows.Reserve(ctx, some)
			require.NoError(t, err)
			require.Empty(t, refused)
			require.EqualValues(t, 2, last[0])
		}
		require.NoError(t, st.Nodes.Append(ctx, nodes))
		x.explain("aggregate", func() {
			var found int
			var next time.Time
			none := func() { t.Error("nothing is planned and nothing waits") }
			require.NoError(t, st.Ask(ctx, "looking", st.Flows.Questions(store.Look[*graph.Flow]{
				Now: now.Add(20*time.Hour + time.Minute), Limit: 100, Due: func(*graph.Flow) { found++ }, Unread: func(store.Unreadable) { t.Error("all can be read") },
				Next: func(at time.Time) { next = at }, LeftBefore: now, Left: none, Waiting: none,
			})...))
			require.Equal(t, 20, found)
			require.False(t, next.IsZero())
		}).within(t, 20+10, 20+2)
		x.explain("aggregate", func() {
			found, err := st.Waiting(ctx, map[string]int64{"s/0007": 2, "s/0008": 1}, 100)
			require.NoError(t, err)
			require.Len(t, found["s/0007"].Nodes, 2)
			require.Len(t, found["s/0008"].Nodes, 1)
		}).within(t, 3+4, 3)
		x.explain("find", func() {
			ids, err := st.Nodes.NextWaiting(ctx, "s/0007", 1)
			require.NoError(t, err)
			require.Equal(t, []string{"s/0008"}, ids)
		}).within(t, 3, 1)
		x.explain("find", func() {
			streams, _, err := st.Flows.Streams(ctx, "s/0007", 5)
			require.NoError(t, err)
			require.Len(t, streams, 5)
		}).within(t, 6, 5)
	})
}

func ids(tasks []*model.Task) []string {
	var out []string
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	return out
}

func finish(t *testing.T, executing []*model.Task) []store.Write {
	t.Helper()
	var out []store.Write
	for _, task := range executing {
		after, err := lifecycle.Finish(task, "mine", lifecycle.Success(bson.RawValue{}), lifecycle.ResolveOptions(task.Options), task.DueAt, 0)
		require.NoError(t, err)
		out = append(out, store.Write{Before: task, After: after})
	}
	return out
}

// explaining is a store whose commands are caught.
type explaining struct {
	*arena
	mu     sync.Mutex
	caught []bson.Raw
}

func newExplaining(t *testing.T, e Engine) *explaining {
	t.Helper()
	x := &explaining{}
	client, err := mongo.Connect(engine.Options(e.URI).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, ev *event.CommandStartedEvent) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.caught = append(x.caught, slices.Clone(ev.Command))
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	x.arena = arenaOn(t, e, client.Database(e.DB(t).Name()))
	return x
}

// explained is what the server said of the parts of a command together.
type explained struct {
	command    string
	keys, docs int
	plans      []string
}

func (x explained) within(t *testing.T, keys, docs int) {
	t.Helper()
	t.Logf("%-13s %4d keys, %4d documents: %s", x.command, x.keys, x.docs, strings.Join(slices.Compact(x.plans), "; "))
	require.LessOrEqual(t, x.keys, keys, "keys examined by %+v", x)
	require.LessOrEqual(t, x.docs, docs, "documents examined by %+v", x)
	for _, p := range x.plans {
		require.NotContains(t, p, "COLLSCAN")
		require.NotRegexp(t, `\bSORT\b`, p) // SORT_MERGE is none
	}
}

// explain catches the commands of that name which do sends, and lets the server explain
// them. A write is explained after it was done: its documents are looked at all the same.
func (x *explaining) explain(name string, do func()) explained {
	t := x.t
	t.Helper()
	x.mu.Lock()
	x.caught = nil
	x.mu.Unlock()
	do()
	x.mu.Lock()
	caught := x.caught
	x.mu.Unlock()
	out := explained{command: name}
	for _, cmd := range caught {
		if first, _ := cmd.IndexErr(0); first.Key() != name {
			continue
		}
		for _, part := range parts(t, cmd) {
			var answer bson.Raw
			require.NoError(t, x.db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: part}, {Key: "verbosity", Value: "executionStats"}}).Decode(&answer))
			stats := answer.Lookup("executionStats")
			require.Equal(t, bson.TypeEmbeddedDocument, stats.Type, "no statistics in %v", answer)
			out.keys += int(stats.Document().Lookup("totalKeysExamined").AsInt64())
			out.docs += int(stats.Document().Lookup("totalDocsExamined").AsInt64())
			out.plans = append(out.plans, stages(answer.Lookup("queryPlanner", "winningPlan").Document()))
		}
	}
	require.NotEmpty(t, out.plans, "no %s was sent", name)
	return out
}

// insert stores due tasks of a type.
func (x *explaining) insert(n int, typ string, change func(*model.Task)) []*model.Task {
	x.t.Helper()
	now := x.store.Clock.Now().Add(-time.Second)
	out := make([]*model.Task, n)
	for i := range out {
		out[i] = lifecycle.NewTask(lifecycle.Draft{Type: typ, Key: rand.Text()}, now)
		if change != nil {
			change(out[i])
		}
	}
	for some := range slices.Chunk(out, 200) {
		x.stored(some)
	}
	return out
}

// stored stores the tasks. Those for which a busy server had no time come again.
func (x *explaining) stored(tasks []*model.Task) {
	x.t.Helper()
	var unstored *store.InsertError
	awaitTrue(x.t, func() string {
		_, err := x.store.Tasks.InsertAgain(x.t.Context(), tasks)
		if !errors.As(err, &unstored) {
			require.NoError(x.t, err)
			return ""
		}
		var again []*model.Task
		for i, why := range unstored.Refused {
			require.ErrorIs(x.t, why, store.ErrHeld)
			again = append(again, tasks[i])
		}
		tasks = again
		return err.Error()
	})
}

// crowd is everything that the hot queries must not look at.
func (x *explaining) crowd(n int) {
	x.t.Helper()
	later := x.store.Clock.Now().Add(time.Hour)
	x.insert(n, "hot", func(task *model.Task) { task.StartTime, task.DueAt = later, later })
	x.insert(n, "hot", func(task *model.Task) { task.Audience = []string{"somebody-else"} })
	x.insert(n, "other", nil)
	x.insert(n, "hot", func(task *model.Task) { // runs elsewhere
		task.Status, task.DueAt, task.LapseAt = model.StatusExecuting, time.Time{}, later
		task.WorkerStates = []model.WorkerState{{ExecID: "theirs", WorkerID: "else", ClaimedAt: later, PingExpireTime: later, Attempt: 1}}
	})
	x.insert(n, "hot", func(task *model.Task) { task.Status, task.DueAt = model.StatusSuccess, time.Time{} })
}

func (x *explaining) claim(tasks []*model.Task) (writes []store.Write, executing []*model.Task) {
	x.t.Helper()
	for _, task := range tasks {
		after, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "me", ExecID: "mine"}, lifecycle.ResolveOptions(task.Options), task.DueAt)
		require.Empty(x.t, no)
		after.WorkerStates[0].PingExpireTime = x.store.Clock.Now().Add(time.Minute)
		after.LapseAt = after.WorkerStates[0].PingExpireTime
		writes, executing = append(writes, store.Write{Before: task, After: after}), append(executing, after)
	}
	return writes, executing
}

func (x *explaining) write(writes []store.Write) {
	x.t.Helper()
	written, err := x.store.Tasks.Writes(x.t.Context(), writes, 0)
	require.NoError(x.t, err)
	for _, w := range written {
		require.True(x.t, w.Applied)
	}
}

func (x *explaining) takeOver() {
	x.t.Helper()
	task := x.insert(1, "hot", nil)[0]
	now := task.DueAt
	eff := lifecycle.ResolveOptions(task.Options)
	eff.Lease = time.Millisecond
	held, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "dead", ExecID: "dead's"}, eff, now)
	require.Empty(x.t, no)
	x.write([]store.Write{{Before: task, After: held}})
	now = now.Add(time.Second)
	expired := lifecycle.Expire(held, eff, now, 0)
	require.NotNil(x.t, expired)
	after, no := lifecycle.Claim(expired, lifecycle.Claimant{WorkerID: "me", ExecID: "mine"}, eff, now)
	require.Empty(x.t, no)
	after.Rev = held.Rev + 1
	got, err := x.store.Tasks.TakeOver(x.t.Context(), store.Write{Before: held, After: after, Lapsed: "dead's", At: now})
	require.NoError(x.t, err)
	require.NotNil(x.t, got)
}
