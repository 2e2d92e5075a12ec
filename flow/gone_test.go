package flow

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// succeeds ends a task with an output, as a worker would, and lets nobody know.
func (d *driven) succeeds(id string, output any) {
	d.t.Helper()
	kind, raw, err := bson.MarshalValue(output)
	require.NoError(d.t, err)
	_, _, err = d.f.store.Tasks.Change(d.t.Context(), id, func(t *model.Task) (*model.Task, error) {
		return lifecycle.Conclude(t, model.StatusSuccess, bson.RawValue{Type: kind, Value: raw}, "", lifecycle.EffectiveOf(t, model.Options{}), d.f.store.Clock.Now()), nil
	})
	require.NoError(d.t, err)
}

// deletes removes a task, as the TTL index of the history does in the end.
func (d *driven) deletes(id string) {
	d.t.Helper()
	res, err := d.db.Collection("tasks").DeleteOne(d.t.Context(), bson.D{{Key: "_id", Value: id}})
	require.NoError(d.t, err)
	require.EqualValues(d.t, 1, res.DeletedCount)
}

// asking is a, a question to a person, and behind both what needs the output of a in the given way.
func asking(need graph.NodeSpec) graph.Spec {
	need.ID, need.After = "need", []string{"a", "ask"}
	if need.Type == "" && need.Wait == nil && need.Flow == nil {
		need.Type = "t"
	}
	return graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t"}, {ID: "ask", After: []string{"a"}, Ask: &graph.Ask{Title: "Go on?"}}, need,
		{ID: "z", Type: "t", After: []string{"need"}, Join: graph.Join{Strategy: graph.AllEnded}},
	}}
}

func TestANodeThatNeedsAnOutputThatIsGoneFails(t *testing.T) {
	t.Parallel()
	list := []graph.NodeSpec{{ID: "x", Type: "t"}}
	for name, need := range map[string]graph.NodeSpec{
		"arguments":  {Args: map[string]any{"n": Output("a.n")}},
		"condition":  {When: map[string]any{"a": map[string]any{"output.n": 7}}},
		"elements":   {Args: Item(""), Each: &graph.Each{Items: Output("a.list")}},
		"its flow":   {Args: map[string]any{"n": Output("a.n")}, Flow: &graph.Spec{Nodes: list}},
		"its time":   {Wait: &graph.Wait{Until: Output("a.at")}},
		"its join":   {Join: graph.Join{Strategy: graph.Custom, Custom: "any"}},
		"no need":    {},
		"in history": {Args: map[string]any{"n": Output("a.n")}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriven(t)
			d.f.joins["any"] = func([]flowplan.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
				return graph.NodeWait, bson.RawValue{}, nil
			}
			need.OnFailure = graph.Continue
			doc, err := d.f.Start(t.Context(), asking(need))
			require.NoError(t, err)
			d.succeeds(taskID(doc, 0), bson.M{"n": 7, "list": []int{1}, "at": "2020-01-01T00:00:00Z"})
			d.told(doc, 0)
			if name == "in history" {
				life, err := d.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "_id", Value: taskID(doc, 0)}}).Raw()
				require.NoError(t, err)
				var fields bson.D
				require.NoError(t, bson.Unmarshal(life, &fields))
				fields[0].Value = taskID(doc, 0) + "@1"
				_, err = d.db.Collection("task_history").InsertOne(t.Context(), append(fields, bson.E{Key: "task_id", Value: taskID(doc, 0)}))
				require.NoError(t, err)
			}
			d.deletes(taskID(doc, 0))
			_, err = d.f.Answer(t.Context(), doc.ID, "ask", map[string]any{}, "")
			require.NoError(t, err)
			st := d.get(doc).States[2]
			if name == "no need" || name == "in history" {
				require.Equal(t, graph.NodeReady, st.Status)
				return
			}
			require.Equal(t, graph.NodeError, st.Status, st.Reason)
			require.Equal(t, "the output of node a is gone: its task has been deleted", st.Reason)
			require.Equal(t, graph.NodeReady, d.get(doc).States[3].Status, "the flow follows the policy of the node")
			if flowspec.HasTask(&doc.Nodes[2]) {
				require.Equal(t, model.StatusCancelled, d.task(doc, 2).Status)
			}
		})
	}
}

// An engine dies after it has decided that a node may start. Before another one carries that out, the output
// in its arguments is gone.
func TestATaskWhoseArgumentsAreGoneWhenItIsToStartFails(t *testing.T) {
	t.Parallel()
	for name, need := range map[string]graph.NodeSpec{
		"a task":   {Args: map[string]any{"n": Output("a.n")}},
		"elements": {Args: Item(""), Each: &graph.Each{Items: Output("a.list")}},
		"a flow":   {Args: map[string]any{"n": Output("a.n")}, Flow: &graph.Spec{Nodes: []graph.NodeSpec{{ID: "x", Type: "t"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriven(t)
			doc, err := d.f.Start(t.Context(), asking(need))
			require.NoError(t, err)
			d.succeeds(taskID(doc, 0), bson.M{"n": 7, "list": []int{1}})
			d.told(doc, 0)
			before := d.get(doc)
			output := d.task(doc, 0).Result
			in := &flowplan.Inputs{Outputs: map[flowplan.Life]bson.RawValue{{}: output}}
			after, err := flowplan.Answer(before, 1, map[string]any{}, "", in, d.f.store.Clock.Now())
			require.NoError(t, err)
			require.Equal(t, graph.NodeReady, after.States[2].Status)
			d.write(before, after)
			d.deletes(taskID(doc, 0))
			require.Empty(t, d.finish(d.get(doc)))
			task := d.task(doc, 2)
			require.Equal(t, model.StatusFailure, task.Status)
			require.Equal(t, "the output of node a is gone: its task has been deleted", task.ErrorInfo)
			d.told(doc, 2)
			require.Equal(t, graph.NodePending, d.get(doc).States[2].Status)

			// It is the same with a new life.
			before = d.get(doc)
			after, err = flowplan.RetryFrom(before, 2, in, d.f.store.Clock.Now())
			require.NoError(t, err)
			d.write(before, after)
			require.Empty(t, d.finish(d.get(doc)))
			require.Equal(t, model.StatusFailure, d.task(doc, 2).Status)
			require.EqualValues(t, 1, d.task(doc, 2).Origin.Generation)
			n, err := d.db.Collection("flows").CountDocuments(t.Context(), bson.D{})
			require.NoError(t, err)
			require.EqualValues(t, 1, n, "no flow starts without its arguments")
		})
	}
}

func TestAFlowWhoseLastOutputIsGoneIsAFailureOfItsNode(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, err := d.f.Start(t.Context(), nested("f"))
	require.NoError(t, err)
	d.cancels(doc, 0)
	child := d.get(&graph.Flow{ID: "-/f.in"})
	d.succeeds(taskID(child, 0), 7)
	ended, err := flowplan.Ended(child, []flowplan.End{{Status: model.StatusSuccess}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(t, err)
	d.write(child, ended)
	d.deletes(taskID(child, 0))
	require.Empty(t, d.finish(d.get(child)))
	require.Equal(t, model.StatusFailure, d.task(doc, 1).Status)
	require.Equal(t, "its flow f.in has ended, but the output of node x is gone: its task has been deleted", d.task(doc, 1).ErrorInfo)
}

func TestANodeWithAnElementWhoseOutputIsGoneFails(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "x", Type: "t", Each: &graph.Each{Items: []int{1, 2}}}}})
	require.NoError(t, err)
	d.finish(d.get(doc))
	for k := range 2 {
		d.succeeds(flowspec.ElementID(doc, 0, k, 0), k)
	}
	before := d.get(doc)
	before.Planned = nil
	ended, err := flowplan.Ended(before, []flowplan.End{{Element: 1, Status: model.StatusSuccess}, {Element: 2, Status: model.StatusSuccess}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(t, err)
	d.deletes(flowspec.ElementID(doc, 0, 1, 0))
	require.Empty(t, d.finish(ended))
	require.Equal(t, model.StatusFailure, d.task(doc, 0).Status)
	require.Equal(t, "the output of element 1 is gone: its task has been deleted", d.task(doc, 0).ErrorInfo)
}
