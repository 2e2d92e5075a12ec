package flow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// world is a database with a worker and an engine. The handler of the type add adds up its terms;
// a node whose key is broken fails.
type world struct {
	t     *testing.T
	db    *mongo.Database
	flows *flow.Flows
	tp    trace.TracerProvider // nil = none

	mu     sync.Mutex
	broken map[string]bool
	ran    []string // keys of the tasks that began, in order
	gate   chan struct{}
}

type terms struct {
	Terms []int  `json:"terms"`
	Text  string `json:"text"`
}

type sum struct {
	Sum  int    `json:"sum"`
	Text string `json:"text"`
}

func newWorld(t *testing.T, change ...func(*flow.Config)) *world {
	w := &world{t: t, db: testdb.New(t), broken: map[string]bool{}}
	cfg := flow.Config{Database: w.db}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	w.flows, err = flow.New(cfg)
	require.NoError(t, err)
	w.tp = cfg.TracerProvider
	w.work()
	w.run(w.flows.Run)
	return w
}

// work hires a worker.
func (w *world) work() {
	c, err := consumer.New(consumer.Config{Database: w.db, TracerProvider: w.tp})
	require.NoError(w.t, err)
	require.NoError(w.t, consumer.Handle(c, model.NewType[terms, sum]("add"), w.add))
	w.run(c.Run)
}

func (w *world) run(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
}

func (w *world) add(ctx context.Context, task *consumer.Task[terms]) (sum, error) {
	w.mu.Lock()
	w.ran = append(w.ran, task.Key)
	broken, gate := w.broken[task.Key], w.gate
	w.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return sum{}, ctx.Err()
		}
	}
	if broken {
		return sum{}, consumer.Fatal(errors.New("it is broken"))
	}
	out := sum{Text: task.Args.Text}
	for _, n := range task.Args.Terms {
		out.Sum += n
	}
	return out, nil
}

// breaks has a node fail, or not any more.
func (w *world) breaks(id, node string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken["flow:"+id+":"+node] = yes
}

func (w *world) start(s graph.Spec) *graph.Flow {
	w.t.Helper()
	f, err := w.flows.Start(w.t.Context(), s)
	require.NoError(w.t, err)
	return f
}

// becomes waits until the flow has the status.
func (w *world) becomes(id string, want graph.Status) *graph.Flow {
	w.t.Helper()
	var f *graph.Flow
	require.Eventually(w.t, func() (yes bool) {
		var err error
		f, err = w.flows.Get(w.t.Context(), id)
		return err == nil && f.Status == want
	}, testdb.Patience, 10*time.Millisecond, "flow %s does not become %s", id, want)
	return f
}

// nodes are the statuses of all nodes, as text.
func (w *world) nodes(id string) map[string]string {
	w.t.Helper()
	views, err := w.flows.Nodes(w.t.Context(), id)
	require.NoError(w.t, err)
	out := map[string]string{}
	for _, v := range views {
		out[v.Node.Node] = string(v.Status)
	}
	return out
}

func (w *world) output(id, node string) (out sum) {
	w.t.Helper()
	views, err := w.flows.Nodes(w.t.Context(), id)
	require.NoError(w.t, err)
	for _, v := range views {
		if v.Node.Node == node {
			require.NoError(w.t, v.Output.Unmarshal(&out))
		}
	}
	return out
}

func node(id string, after ...string) graph.NodeSpec {
	return graph.NodeSpec{ID: id, Type: "add", After: after, Args: map[string]any{"terms": []any{1}}}
}

// diamond is a before b and c, and these before d.
func diamond(key string, change ...func(b, c, d *graph.NodeSpec)) graph.Spec {
	s := graph.Spec{Key: key, Nodes: []graph.NodeSpec{node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")}}
	for _, f := range change {
		f(&s.Nodes[1], &s.Nodes[2], &s.Nodes[3])
	}
	return s
}

func TestOutputsOfParentsReachTheArgumentsOfTheChild(t *testing.T) {
	w := newWorld(t)
	s := diamond("f", func(b, c, d *graph.NodeSpec) {
		b.Args = map[string]any{"terms": []any{map[string]any{"$output": "a.sum"}, 10}}
		c.Args = map[string]any{"terms": []any{map[string]any{"$output": "a.sum"}, map[string]any{"$arg": "more.1"}}}
		d.Args = map[string]any{"terms": []any{map[string]any{"$output": "b.sum"}, map[string]any{"$output": "c.sum"}}, "text": map[string]any{"$arg": "text"}}
	})
	s.Args = map[string]any{"more": []int{100, 200}, "text": "all"}
	f := w.start(s)
	require.Equal(t, "-/f", f.ID)
	require.True(t, f.Created)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS", "c": "SUCCESS", "d": "SUCCESS"}, w.nodes(f.ID))
	require.Equal(t, sum{Sum: 1 + 10 + 1 + 200, Text: "all"}, w.output(f.ID, "d"))
	require.Equal(t, "flow:f:a", w.ran[0])
	require.Equal(t, "flow:f:d", w.ran[3])
	require.Eventually(t, func() bool { // records follow the decision
		n, err := w.db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{{Key: "status", Value: "SUCCESS"}})
		return err == nil && n == 4
	}, testdb.Patience, 10*time.Millisecond)
	again := w.start(graph.Spec{Key: "f", Nodes: []graph.NodeSpec{node("other")}})
	require.Len(t, again.Nodes, 4, "a flow of the key exists")
	require.False(t, again.Created)
	require.Len(t, w.ran, 4)
}

func TestANodeThatFailsSuspendsTheFlowUntilAPersonResolvesIt(t *testing.T) {
	var mu sync.Mutex
	alerts := map[string]string{}
	w := newWorld(t, func(c *flow.Config) {
		c.OnPending = func(_ context.Context, _ *graph.Flow, node, reason string) {
			mu.Lock()
			defer mu.Unlock()
			alerts[node] = reason
		}
	})
	w.breaks("f", "b", true)
	f := w.start(diamond("f"))
	w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "PENDING", "c": "SUCCESS", "d": "PENDING"}, w.nodes(f.ID))
	require.Eventually(t, func() bool { // an alert is sent after the decision is stored
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(alerts, map[string]string{"b": "its task failed: it is broken"})
	}, testdb.Patience, 10*time.Millisecond)
	var held model.Task
	require.NoError(t, w.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "key", Value: "flow:f:d"}}).Decode(&held))
	require.Equal(t, model.StatusWait, held.Status, "the task of a node that hangs waits")
	why, err := w.flows.Explain(t.Context(), f.ID, "d")
	require.NoError(t, err)
	require.Equal(t, []string{"It is PENDING: blocked by b, which is PENDING.", "It starts when all its parents have succeeded.", "Resolve b to let it go on."}, why)
	_, err = w.flows.Resolve(t.Context(), f.ID, "a", graph.NodeError, "")
	require.ErrorContains(t, err, "it is SUCCESS; only PENDING can be resolved")
	_, err = w.flows.Resolve(t.Context(), f.ID, "b", graph.NodeSuccess, "done by hand")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS", "c": "SUCCESS", "d": "SUCCESS"}, w.nodes(f.ID))
}

// A node that hangs on a PENDING one becomes a matter of its own when it can no longer start.
func TestOnlyTheNodeThatAPersonMustResolveCausesAnAlert(t *testing.T) {
	t.Parallel()
	told := make(chan string, 10)
	w := newWorld(t, func(c *flow.Config) {
		c.OnPending = func(_ context.Context, _ *graph.Flow, node, reason string) { told <- node + ": " + reason }
	})
	w.breaks("f", "b", true)
	f := w.start(diamond("f"))
	w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, "b: its task failed: it is broken", testdb.Receive(t, told))
	_, err := w.flows.Resolve(t.Context(), f.ID, "b", graph.NodeError, "")
	require.NoError(t, err)
	require.Equal(t, "d: b failed, and all parents must succeed", testdb.Receive(t, told))
}

func TestFailurePoliciesAndJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(b, c, d *graph.NodeSpec)
		status graph.Status
		nodes  string
	}{
		"continue, all succeeded": {func(b, _, _ *graph.NodeSpec) { b.OnFailure = graph.Continue }, graph.StatusPending, "map[a:SUCCESS b:ERROR c:SUCCESS d:PENDING]"},
		"continue, all ended": {func(b, _, d *graph.NodeSpec) { b.OnFailure, d.Join.Strategy = graph.Continue, graph.AllEnded },
			graph.StatusFinish, "map[a:SUCCESS b:ERROR c:SUCCESS d:SUCCESS]"},
		"suspend, at least one": {func(_, _, d *graph.NodeSpec) { d.Join = graph.Join{Strategy: graph.AtLeast, N: 1} },
			graph.StatusFinish, "map[a:SUCCESS b:PENDING c:SUCCESS d:SUCCESS]"},
		"these": {func(_, _, d *graph.NodeSpec) { d.Join = graph.Join{Strategy: graph.These, Nodes: []string{"c"}} },
			graph.StatusFinish, "map[a:SUCCESS b:PENDING c:SUCCESS d:SUCCESS]"},
		"end": {func(b, _, _ *graph.NodeSpec) { b.OnFailure = graph.End }, graph.StatusFinish, "map[a:SUCCESS b:ERROR c:SUCCESS d:SKIPPED]"},
		"a branch that is not taken": {func(b, _, _ *graph.NodeSpec) {
			b.When = map[string]any{"a": map[string]any{"output.sum": map[string]any{"$gt": 1}}}
		},
			graph.StatusFinish, "map[a:SUCCESS b:SKIPPED c:SUCCESS d:SUCCESS]"},
	} {
		t.Run(name, func(t *testing.T) {
			key := t.Name()
			w.breaks(key, "b", true)
			f := w.start(diamond(key, c.change, func(_, c, _ *graph.NodeSpec) {
				if name == "end" {
					c.After, c.Join = []string{"a"}, graph.Join{}
				}
			}))
			w.becomes(f.ID, c.status)
			got := w.nodes(f.ID)
			if name == "end" && got["c"] != "SUCCESS" {
				got["c"] = "SUCCESS" // it may have been cancelled before it began
			}
			require.Equal(t, c.nodes, fmt.Sprint(got))
		})
	}
}

func TestACancelledFlowCancelsWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gate = make(chan struct{})
	f := w.start(diamond("f"))
	w.eventually("a is RUNNING", func() bool { return w.nodes(f.ID)["a"] == "RUNNING" })
	_, err := w.flows.Cancel(t.Context(), f.ID, "no longer wanted")
	require.NoError(t, err)
	f = w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, "no longer wanted", f.Reason)
	require.Equal(t, map[string]string{"a": "ERROR", "b": "SKIPPED", "c": "SKIPPED", "d": "SKIPPED"}, w.nodes(f.ID))
	require.Eventually(t, func() bool {
		n, err := w.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "status", Value: bson.D{{Key: "$ne", Value: model.StatusCancelled}}}, {Key: "type", Value: "add"}})
		return err == nil && n == 0
	}, testdb.Patience, 10*time.Millisecond, "no task stays behind")
}

func TestARetryFromANodeRunsAllThatHangsOnItAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f", "b", true)
	f := w.start(diamond("f", func(b, _, d *graph.NodeSpec) {
		b.OnFailure, d.Join.Strategy = graph.Continue, graph.AllEnded
		d.Args = map[string]any{"terms": []any{map[string]any{"$output": "c.sum"}, map[string]any{"$output": "b.sum"}}}
	}))
	w.becomes(f.ID, graph.StatusFinish)
	w.breaks("f", "b", false)
	_, err := w.flows.RetryFrom(t.Context(), f.ID, "b")
	require.NoError(t, err)
	f = w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS", "c": "SUCCESS", "d": "SUCCESS"}, w.nodes(f.ID))
	require.Equal(t, 2, w.output(f.ID, "d").Sum)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, []string{"flow:f:b", "flow:f:d"}, w.ran[len(w.ran)-2:])
	require.Len(t, w.ran, 6)
}

// b ends the flow while w waits for its time. c, behind w, runs when the flow goes on.
func TestARetryOfAFlowThatEndedEarlyRunsWhatThatSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f", "b", true)
	s := diamond("f", func(b, c, _ *graph.NodeSpec) {
		b.OnFailure, c.After, c.Join.Strategy = graph.End, []string{"w"}, graph.AllEnded
	})
	wait := graph.NodeSpec{ID: "w", After: []string{"a"}, Wait: &graph.Wait{For: time.Hour}}
	s.Nodes = slices.Insert(s.Nodes, 2, wait)
	f := w.start(s)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "ERROR", "w": "ERROR", "c": "SKIPPED", "d": "SKIPPED"}, w.nodes(f.ID))
	w.breaks("f", "b", false)
	_, err := w.flows.RetryFrom(t.Context(), f.ID, "b")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS", "w": "ERROR", "c": "SUCCESS", "d": "SUCCESS"}, w.nodes(f.ID))
}

func TestACustomJoinIsAskedAfterEachEndWithWhatItSaved(t *testing.T) {
	join := func(parents []flow.Parent, saved bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		total := 0
		for _, p := range parents {
			var out sum
			if p.Output.Unmarshal(&out) == nil {
				total += out.Sum
			}
		}
		want, _ := saved.AsInt64OK()
		if int64(total) < want {
			return graph.NodeWait, saved, nil
		}
		return graph.NodeReady, saved, nil
	}
	w := newWorld(t, func(c *flow.Config) { c.Joins = map[string]flow.JoinFunc{"enough": join} })
	f := w.start(diamond("enough", func(_, _, d *graph.NodeSpec) {
		d.Join = graph.Join{Strategy: graph.Custom, Custom: "enough", Context: 2}
	}))
	w.becomes(f.ID, graph.StatusFinish)
	f = w.start(diamond("never", func(_, _, d *graph.NodeSpec) {
		d.Join = graph.Join{Strategy: graph.Custom, Custom: "enough", Context: 3}
	}))
	f = w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, `node d: all parents ended, and join function "enough" has not decided`, f.Reason)
}

func TestAnInvalidFlowIsRefusedWholeBeforeAnythingIsWritten(t *testing.T) {
	w := newWorld(t)
	_, err := w.flows.Start(t.Context(), diamond("f", func(b, _, _ *graph.NodeSpec) { b.After = []string{"d"} }))
	require.ErrorIs(t, err, model.ErrInvalid)
	for _, coll := range []string{"flows", "flow_nodes"} {
		n, err := w.db.Collection(coll).CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

func TestAFlowInATransactionExistsAfterTheCommitAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	for _, commits := range []bool{false, true} {
		session, err := w.db.Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(t.Context())
		var f *graph.Flow
		_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			if f, err = w.flows.Start(ctx, diamond(fmt.Sprint(commits))); err != nil || commits {
				return nil, err
			}
			return nil, errors.New("no")
		})
		if !commits {
			require.EqualError(t, err, "no")
			_, err = w.flows.Get(t.Context(), f.ID)
			require.ErrorIs(t, err, model.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		w.becomes(f.ID, graph.StatusFinish)
	}
}

func TestATransactionThatStartsAFlowTwiceGoesOn(t *testing.T) {
	w := newWorld(t)
	first, err := w.flows.Start(t.Context(), diamond("f"))
	require.NoError(t, err)
	session, err := w.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	orders := w.db.Collection("orders")
	require.NoError(t, w.db.CreateCollection(t.Context(), orders.Name()))
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		again, err := w.flows.Start(ctx, diamond("f"))
		if err != nil {
			return nil, err
		}
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, first.CreatedAt, again.CreatedAt)
		return orders.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}})
	})
	require.NoError(t, err)
	n, err := orders.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	w.becomes(first.ID, graph.StatusFinish)
}

func TestSecretsOfCallbacksAreStoredSealedAlone(t *testing.T) {
	s := diamond("f", func(b, _, _ *graph.NodeSpec) {
		b.Options.Callback = &model.Callback{
			Success:  &model.CallbackTarget{URL: "http://127.0.0.1:9/done"},
			Security: &model.CallbackSecurity{Type: "aksk", Keys: []callback.Key{{AccessKey: "ak", Secret: "hunter2"}}},
		}
	})
	w := newWorld(t)
	_, err := w.flows.Start(t.Context(), s)
	require.ErrorContains(t, err, "nodes[1].options.callback.security.keys")
	with, err := flow.New(flow.Config{Database: w.db, SecretKey: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"})
	require.NoError(t, err)
	f, err := with.Start(t.Context(), s)
	require.NoError(t, err)
	raw, err := w.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "key", Value: "flow:f:b"}}).Raw()
	require.NoError(t, err)
	require.NotContains(t, raw.String(), "hunter2")
	require.Equal(t, "hunter2", s.Nodes[1].Options.Callback.Security.Keys[0].Secret, "the caller's own stays as it is")
	w.becomes(f.ID, graph.StatusFinish)
}

// The document of the flow never has the arguments, of which there are 20 MB.
func TestALargeOutputMayGoToManyNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	t.Parallel()
	w := newWorld(t)
	a := node("a")
	a.Args = map[string]any{"text": strings.Repeat("x", 250_000)}
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{a}}
	last := node("z")
	for i := range 80 {
		n := node(fmt.Sprint("n", i), "a")
		n.Args = map[string]any{"text": map[string]any{"$output": "a.text"}}
		s.Nodes, last.After = append(s.Nodes, n), append(last.After, n.ID)
	}
	s.Nodes = append(s.Nodes, last)
	f := w.start(s)
	w.becomes(f.ID, graph.StatusFinish)
	require.Len(t, w.output(f.ID, "n79").Text, 250_000)
}

func TestAJoinThatPanicsStopsItsOwnFlowAlone(t *testing.T) {
	t.Parallel()
	join := func([]flow.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) { panic("no") }
	w := newWorld(t, func(c *flow.Config) { c.Joins = map[string]flow.JoinFunc{"bad": join} })
	bad := w.start(diamond("bad", func(_, _, d *graph.NodeSpec) { d.Join = graph.Join{Strategy: graph.Custom, Custom: "bad"} }))
	good := w.start(diamond("good"))
	w.becomes(good.ID, graph.StatusFinish)
	w.eventually("a is SUCCESS", func() bool { return w.nodes(bad.ID)["a"] == "SUCCESS" })
	_, err := w.flows.Cancel(t.Context(), bad.ID, "")
	require.NoError(t, err)
	w.becomes(bad.ID, graph.StatusFinish)
}
