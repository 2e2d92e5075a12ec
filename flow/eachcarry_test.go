package flow

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// An engine dies after each decision about a node with elements, and wakes up later and carries each
// out once more.
func TestElementsStartAndAreGatheredOnceWhereverTheEngineDies(t *testing.T) {
	t.Parallel()
	var off atomic.Int64
	d := skipping(t, testdb.Patient(t), &off) // on a slow machine nothing seems to be held
	s := graph.Spec{Key: "f", Args: []int{1, 2, 3}, Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "each", Type: "t", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, Args: Item(""), Each: &graph.Each{Items: Arg(""), Limit: 1}, OnFailure: graph.Continue},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	sweeps := func() { d.rounds(&off) }
	sweeps()
	element := func(k int) *model.Task {
		task, err := d.prod.Get(t.Context(), flowspec.ElementID(doc, 1, k, 0))
		require.NoError(t, err)
		return task
	}
	decided := func(ends ...flowplan.End) *graph.Flow {
		before := d.get(doc)
		require.Empty(t, before.Planned)
		after, err := flowplan.Ended(before, ends, &flowplan.Inputs{}, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(before, after)
		sweeps()
		return after
	}
	started := decided(flowplan.End{Node: 0, Status: model.StatusFailure})
	tasks := d.count("tasks")
	require.Equal(t, []model.Status{model.StatusNew, model.StatusWait, model.StatusWait}, []model.Status{element(0).Status, element(1).Status, element(2).Status})
	require.Equal(t, int64(2), element(1).Args.Int64())
	d.finish(started)
	require.Equal(t, tasks, d.count("tasks"), "an element is sent once")
	for k := range 3 {
		next := decided(flowplan.End{Node: 1, Element: k + 1, Status: model.StatusFailure})
		if k < 2 {
			require.Equal(t, model.StatusNew, element(k+1).Status)
			rev := element(k + 1).Rev
			d.finish(next)
			require.Equal(t, rev, element(k+1).Rev)
			continue
		}
		main := d.task(doc, 1)
		require.Equal(t, model.StatusFailure, main.Status)
		d.finish(next)
		require.Equal(t, main.Rev, d.task(doc, 1).Rev, "it is gathered once")
	}
	d.finish(started) // from the beginning
	require.Equal(t, tasks, d.count("tasks"))
	require.Equal(t, graph.StatusFinish, d.get(doc).Status)
	require.Equal(t, graph.NodeError, d.get(doc).States[1].Status)
}

// An engine has decided that a node starts its elements, and dies. A person has the task run again that made their list.
func TestANodeWhoseListHasChangedSinceItStartedFails(t *testing.T) {
	t.Parallel()
	for _, list := range [][]int{{1}, {1, 2, 3}} {
		d := newDriven(t)
		doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
			{ID: "a", Type: "t"}, {ID: "each", Type: "t", After: []string{"a"}, Args: Item(""), Each: &graph.Each{Items: Output("a")}, OnFailure: graph.Continue},
		}})
		require.NoError(t, err)
		before := d.get(doc)
		two := bson.RawValue{Type: bson.TypeArray, Value: bsoncore.BuildArray(nil, bsoncore.Value{Type: bsoncore.TypeNull}, bsoncore.Value{Type: bsoncore.TypeNull})}
		started, err := flowplan.Ended(before, []flowplan.End{{Node: 0, Status: model.StatusSuccess}}, &flowplan.Inputs{Outputs: map[flowplan.Life]bson.RawValue{{}: two}}, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(before, started)
		d.succeeds(taskID(doc, 0), list)
		tasks := d.count("tasks")
		require.Empty(t, d.finish(d.get(doc)))
		require.Equal(t, tasks, d.count("tasks"))
		d.told(doc, 1)
		now := d.get(doc)
		require.Equal(t, graph.StatusFinish, now.Status)
		require.Equal(t, graph.NodeError, now.States[1].Status)
		require.Equal(t, fmt.Sprintf("the list of its elements has changed since it started: it has %d, and had 2", len(list)), now.States[1].Reason)
	}
}

// All elements are sent by one command, and ends that are there together are one decision. So an
// element costs its task, and nothing else.
func TestElementsCostTheirTasksAlone(t *testing.T) {
	t.Parallel()
	const n = 200
	c := newCounted(t)
	s := graph.Spec{Key: "f", Args: make([]int, n), Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "each", Type: "t", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, Each: &graph.Each{Items: Arg("")}, OnFailure: graph.Continue},
	}}
	beside := c.beside()
	c.e.Round(t.Context()) // the first one reads the types, too
	doc, err := c.f.Start(t.Context(), s)
	require.NoError(t, err)
	c.succeed(beside, idsOf(doc, []int{0}))
	_, statements := c.count(func() { c.e.Round(t.Context()) })
	require.Equal(t, n, statements["insert tasks"])
	require.LessOrEqual(t, statements["update flow_nodes"], 2)
	require.LessOrEqual(t, statements["update flows"], 2)
	var elements []string
	for k := range n {
		elements = append(elements, flowspec.ElementID(doc, 1, k, 0))
	}
	c.succeed(beside, elements)
	commands, statements := c.count(func() { c.e.Round(t.Context()) })
	delete(commands, "update tasks, outboxes")
	require.LessOrEqual(t, commands["find tasks"], 3+2, fmt.Sprint(commands))
	require.LessOrEqual(t, statements["update flows"], 2)
	require.LessOrEqual(t, statements["update tasks"], 1, "that of the node")
	require.Eventually(t, func() bool {
		c.e.Round(t.Context())
		return c.get(doc).Status == graph.StatusFinish
	}, testdb.Patience, 10*time.Millisecond)
}
