package flow

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// lets the engine work n times, 20 seconds apart.
func (d *driven) lets(off *atomic.Int64, n int) {
	for range n {
		off.Add(int64(20 * time.Second))
		d.e.Round(d.t.Context())
	}
	d.e.Flush(d.t.Context())
}

func TestAFirstNodeThatCannotStartFails(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]graph.NodeSpec{
		"its flow": {ID: "in", Args: map[string]any{"list": 5}, Flow: &graph.Spec{Nodes: []graph.NodeSpec{
			{ID: "x", Type: "t", Each: &graph.Each{Items: Arg("list")}},
		}}},
		"too large elements": {ID: "x", Type: "t", Args: map[string]any{"i": Item(""), "text": strings.Repeat("x", 60_000)}, Each: &graph.Each{Items: make([]int, 900)}},
	} {
		t.Run(name, func(t *testing.T) {
			var off atomic.Int64
			d := skipping(t, testdb.New(t), &off)
			node.OnFailure = graph.Continue
			doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{node}})
			require.NoError(t, err)
			d.lets(&off, 60)
			got := d.get(doc)
			require.Equal(t, graph.StatusFinish, got.Status)
			require.Equal(t, graph.NodeError, got.States[0].Status)
			require.NotEmpty(t, got.States[0].Reason)
		})
	}
}

func TestAJoinThatFailsBehindAWaitHoldsUpItsFlowForAMinute(t *testing.T) {
	var off atomic.Int64
	d := skipping(t, testdb.New(t), &off)
	d.f.joins["bad"] = func([]flowplan.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		return "", bson.RawValue{}, errors.New("broken")
	}
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "w", Wait: &graph.Wait{For: 10 * time.Second}},
		{ID: "x", Type: "t", After: []string{"w"}, Join: graph.Join{Strategy: graph.Custom, Custom: "bad"}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	doc = d.get(doc)
	for _, late := range []time.Duration{0, joinPatience / 2, joinPatience} {
		off.Store(int64(late))
		answers, err := planner{d.f}.Decide(t.Context(), []decision.Case[*graph.Flow]{{Doc: doc, Due: true}}, doc.DueAt.Add(2*joinPatience))
		require.NoError(t, err)
		if late < joinPatience {
			require.ErrorContains(t, answers[0].Err, "broken")
			continue
		}
		require.NoError(t, answers[0].Err)
		require.Equal(t, graph.StatusPending, answers[0].After.Status)
	}
}

func TestNoElementStaysBehindTheNodeThatEndedTheFlow(t *testing.T) {
	var off atomic.Int64
	d := skipping(t, testdb.New(t), &off)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "x", Type: "t", OnFailure: graph.End, Each: &graph.Each{Items: []int{1, 2, 3}, Limit: 2}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	d.lets(&off, 3)
	_, err = d.prod.Cancel(t.Context(), "-/t/flow:f:x/0", "")
	require.NoError(t, err)
	d.lets(&off, 5)
	got := d.get(doc)
	require.Equal(t, graph.StatusFinish, got.Status)
	for _, k := range []string{"1", "2"} {
		task, err := d.prod.Get(t.Context(), "-/t/flow:f:x/"+k)
		require.NoError(t, err)
		require.Equal(t, model.StatusCancelled, task.Status)
	}
}

func TestNoElementStaysBehindANodeWhoseTaskIsCancelled(t *testing.T) {
	t.Parallel()
	for _, policy := range []graph.Policy{graph.Continue, graph.Suspend} {
		var off atomic.Int64
		d := skipping(t, testdb.New(t), &off)
		s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
			{ID: "x", Type: "t", OnFailure: policy, Each: &graph.Each{Items: []int{1, 2}, Limit: 1}},
		}}
		doc, err := d.f.Start(t.Context(), s)
		require.NoError(t, err)
		d.lets(&off, 3)
		_, err = d.prod.Cancel(t.Context(), "-/mscheduler.node/flow:f:x", "")
		require.NoError(t, err)
		d.lets(&off, 5)
		if policy == graph.Suspend {
			d.retry(doc, "x")
			d.lets(&off, 60)
		}
		for _, k := range []string{"0", "1"} {
			task, err := d.prod.Get(t.Context(), "-/t/flow:f:x/"+k)
			require.NoError(t, err)
			if task.Status != model.StatusCancelled {
				t.Errorf("%s: task %s is %s", policy, k, task.Status)
			}
		}
	}
}

func TestTheFlowOfAnEarlierLifeEndsAlthoughTheNewOneCannotStart(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		var off atomic.Int64
		d := skipping(t, testdb.New(t), &off)
		s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
			{ID: "z", Type: "t"},
			{ID: "in", After: []string{"z"}, Args: map[string]any{"list": map[string]any{"$output": "z"}}, Flow: &graph.Spec{Nodes: []graph.NodeSpec{
				{ID: "ask", Ask: &graph.Ask{Title: "?"}}, {ID: "x", Type: "t", After: []string{"ask"}, Each: &graph.Each{Items: Arg("list")}}}}},
		}}
		doc, err := d.f.Start(t.Context(), s)
		require.NoError(t, err)
		d.lets(&off, 3)
		before := d.get(doc)
		_, err = d.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: taskID(doc, 0)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "Success"}, {Key: "result", Value: bson.A{1}}}}})
		require.NoError(t, err)
		in := &flowplan.Inputs{}
		after, err := flowplan.Ended(before, []flowplan.End{{Node: 0, Status: model.StatusSuccess}}, in, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(before, after)
		d.lets(&off, 5)
		require.Equal(t, graph.StatusPending, d.get(doc).Status)
		require.Equal(t, graph.StatusPending, d.get(&graph.Flow{ID: "-/f.in"}).Status)
		if gone { // its retention is over
			_, err = d.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: taskID(doc, 0)}})
			require.NoError(t, err)
		}
		d.retry(doc, "in")
		d.lets(&off, 5)
		if got := d.get(&graph.Flow{ID: "-/f.in"}).Status; got != graph.StatusFinish {
			t.Errorf("gone=%v: the flow of the old life is %s", gone, got)
		}
	}
}

func TestAFlowWhoseFirstNodeCannotStartCanBeCancelled(t *testing.T) {
	t.Parallel()
	var off atomic.Int64
	d := skipping(t, testdb.New(t), &off)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "in", Args: map[string]any{"list": 5}, Flow: &graph.Spec{Nodes: []graph.NodeSpec{
			{ID: "x", Type: "t", Each: &graph.Each{Items: Arg("list")}}}}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	d.lets(&off, 5)
	_, err = d.f.Cancel(t.Context(), doc.ID, "")
	require.NoError(t, err)
	d.lets(&off, 60)
	require.Equal(t, graph.StatusFinish, d.get(doc).Status)
}

func TestTheReasonWhyANodeCannotStartStays(t *testing.T) {
	var off atomic.Int64
	d := skipping(t, testdb.New(t), &off)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "x", Type: "t", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, Each: &graph.Each{Items: map[string]any{"$output": "a"}}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	d.cancels(doc, 0)
	d.lets(&off, 5)
	require.Contains(t, d.get(doc).States[1].Reason, "want a list")
}

// The arguments of a node have 256 KiB at most, and a result may be larger. What a decision about such nodes costs grows
// as their number does, whether they are beside each other or each lets the next one start.
func TestNodesWhoseArgumentsCannotBeMadeFailTogether(t *testing.T) {
	f := &Flows{}
	large := bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(nil, strings.Repeat("x", 300<<10))}
	for name, after := range map[string]func(i int) string{
		"beside each other": func(int) string { return "n0" },
		"in a chain":        func(i int) string { return fmt.Sprint("n", i-1) },
	} {
		cost := func(n int) uint64 {
			s := graph.Spec{Key: "f"}
			for i := range n {
				v := graph.NodeSpec{ID: fmt.Sprint("n", i), Type: "t", OnFailure: graph.Continue}
				if i > 0 {
					v.After, v.Join.Strategy, v.Args = []string{after(i)}, graph.AllEnded, Output("n0")
				}
				s.Nodes = append(s.Nodes, v)
			}
			last := graph.NodeSpec{ID: "last", Type: "t", Join: graph.Join{Strategy: graph.AllEnded}}
			for i := range n {
				last.After = append(last.After, fmt.Sprint("n", i))
			}
			s.Nodes = append(s.Nodes, last)
			doc, err := flowspec.Build(&s, "f", time.Now())
			require.NoError(t, err)
			doc, err = flowplan.Begin(doc, time.Now())
			require.NoError(t, err)
			doc.Planned = nil
			m := &making{flow: doc, known: newMemo(doc), decide: func(in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
				return flowplan.Ended(doc, []flowplan.End{{Status: model.StatusSuccess}}, in, now)
			}}
			m.known.outputs[flowplan.Life{}] = large
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			f.try(m, time.Now())
			runtime.ReadMemStats(&now)
			require.NoError(t, m.err)
			require.NotNil(t, m.after)
			for i := 1; i < n; i++ {
				require.Equal(t, graph.NodeError, m.after.States[i].Status)
				require.Contains(t, m.after.States[i].Reason, "more than 262144 bytes")
			}
			require.Equal(t, graph.NodeReady, m.after.States[n].Status)
			return now.Mallocs - before.Mallocs
		}
		few, many := cost(50), cost(400)
		require.Less(t, many, 12*few, name) // eight times as many
	}
}
