package integration

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// checkFlows proves, from what is stored alone, that each node became what the rule says, and how
// its handler ran.
func (a *arena) checkFlows(f *flow.Flows, seed, count int) {
	a.t.Helper()
	type place struct {
		flow int
		node string
	}
	marks := map[place][]flowMark{}
	cur, err := a.db.Collection("marks").Find(a.t.Context(), bson.D{})
	require.NoError(a.t, err)
	var all []flowMark
	require.NoError(a.t, cur.All(a.t.Context(), &all))
	for _, m := range all {
		marks[place{m.Flow, m.Node}] = append(marks[place{m.Flow, m.Node}], m)
		require.Empty(a.t, m.Early, "node %s of flow %d began too early", m.Node, m.Flow)
	}
	statuses, ran := map[graph.NodeStatus]int{}, 0
	for n := range count {
		s, fails := flowDef(seed, n)
		want := flowSettled(s, fails)
		doc, err := f.Get(a.t.Context(), "-/"+s.Key)
		require.NoError(a.t, err)
		last := want[s.Nodes[len(s.Nodes)-1].ID]
		nodes, err := f.Nodes(a.t.Context(), doc.ID)
		require.NoError(a.t, err)
		for _, v := range nodes {
			require.Equal(a.t, want[v.Node.Node], v.Status, "node %s of flow %d: %s", v.Node.Node, n, v.Reason)
		}
		over := map[bool]graph.Status{true: graph.StatusPending, false: graph.StatusFinish}[last == graph.NodePending]
		require.Equal(a.t, over, doc.Status, "flow %d", n)
		records := a.flowRecords(doc.ID)
		require.Len(a.t, records, len(s.Nodes))
		for _, v := range nodes {
			id, spec := v.Node.Node, s.Nodes[nodeAt(s, v.Node.Node)]
			require.Equal(a.t, want[id], records[id], "the record of node %s of flow %d", id, n)
			statuses[v.Status]++
			if !runsItself(&spec) {
				require.Empty(a.t, marks[place{n, id}])
				require.Contains(a.t, []graph.NodeStatus{graph.NodeSuccess, graph.NodePending, graph.NodeSkipped}, v.Status)
				a.checkOfOthers(&spec, doc.Key, &v)
				continue
			}
			task, began := a.get(model.TaskID("", flowWork.Name(), flowspec.TaskKey("", s.Key, id))), marks[place{n, id}]
			switch v.Status { //nolint:exhaustive // the others say nothing more
			case graph.NodeSuccess:
				require.Equal(a.t, model.StatusSuccess, task.Status)
				var out flowOut
				require.NoError(a.t, v.Output.Unmarshal(&out))
				require.Equal(a.t, id, out.Node)
			case graph.NodePending:
				require.NotEmpty(a.t, v.Reason)
				why, err := f.Explain(a.t.Context(), doc.ID, id)
				require.NoError(a.t, err)
				require.NotEmpty(a.t, why)
			}
			runs := task.Status == model.StatusSuccess || task.Status == model.StatusFailure
			require.Equal(a.t, runs, len(began) > 0, "node %s of flow %d is %s, its task %s, and began %d times", id, n, v.Status, task.Status, len(began))
			if !runs {
				require.Contains(a.t, []model.Status{model.StatusWait, model.StatusCancelled}, task.Status)
				require.Zero(a.t, task.Attempt, "nobody claimed node %s of flow %d", id, n)
				continue
			}
			ran++
			require.LessOrEqual(a.t, len(began), begunAtMost(task.Attempt, task.WorkerStates), inWords(task))
			for _, m := range began {
				require.Equal(a.t, task.Generation, m.Life, "node %s of flow %d had one life", id, n)
				if len(spec.After) > 0 && want[spec.After[0]] == graph.NodeSuccess && runsItself(&s.Nodes[nodeAt(s, spec.After[0])]) && spec.Join.Strategy == graph.AllSucceeded {
					require.Equal(a.t, spec.After[0], m.Before, "the output of its first parent reached node %s of flow %d", id, n)
				}
			}
		}
	}
	require.NotZero(a.t, statuses[graph.NodeSuccess])
	a.t.Logf("nodes %v; %d ran, %d times", statuses, ran, len(all))
}

// checkOfOthers proves that the elements of a node, or the node of the flow that it started, ran if the
// node succeeded, each in one life, and not at all else.
func (a *arena) checkOfOthers(spec *graph.NodeSpec, key string, v *flow.NodeView) {
	a.t.Helper()
	var keys []string
	switch {
	case spec.Flow != nil:
		keys = []string{flowspec.TaskKey("", key+"."+spec.ID, "x")}
	case spec.Each != nil:
		for k := range 3 {
			keys = append(keys, fmt.Sprintf("%s/%d", flowspec.TaskKey("", key, spec.ID), k))
		}
		var out []flowOut
		if v.Status == graph.NodeSuccess {
			require.NoError(a.t, v.Output.Unmarshal(&out))
			require.Equal(a.t, slices.Repeat([]flowOut{{Node: "plain"}}, 3), out)
		}
	}
	for _, k := range keys {
		var marks []struct {
			Life int64 `bson:"life"`
		}
		cur, err := a.db.Collection("plain_marks").Find(a.t.Context(), bson.D{{Key: "key", Value: k}})
		require.NoError(a.t, err)
		require.NoError(a.t, cur.All(a.t.Context(), &marks))
		require.Equal(a.t, v.Status == graph.NodeSuccess, len(marks) > 0, "%s, node %s", k, v.Status)
		for _, m := range marks {
			require.Equal(a.t, marks[0].Life, m.Life, "%s had one life", k)
		}
	}
}

// nodeAt is where a node stands in its definition.
func nodeAt(s graph.Spec, id string) int {
	return slices.IndexFunc(s.Nodes, func(v graph.NodeSpec) bool { return v.ID == id })
}

// flowRecords are the statuses in the records of a flow's nodes.
func (a *arena) flowRecords(id string) map[string]graph.NodeStatus {
	a.t.Helper()
	cur, err := a.db.Collection("flow_nodes").Find(a.t.Context(), bson.D{{Key: "flow_id", Value: id}})
	require.NoError(a.t, err)
	var nodes []graph.Node
	require.NoError(a.t, cur.All(a.t.Context(), &nodes))
	out := map[string]graph.NodeStatus{}
	for _, v := range nodes {
		out[v.Node] = v.Status
	}
	return out
}

// begunAtMost is how many executions of a task may have begun: one for each attempt, and those that
// gave the task back because their leases could not be extended in time, as on a busy machine. They
// cost no attempt.
func begunAtMost(attempts int, states []model.WorkerState) int {
	for _, w := range states {
		if w.FailKind == failkind.Released && !w.Unstarted {
			attempts++
		}
	}
	return attempts
}
