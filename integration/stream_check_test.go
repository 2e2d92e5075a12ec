package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// linkRan is when the handler of a task began, each time.
type linkRan struct {
	first, last time.Time
	times       int
}

// chains are the nodes of all streams in the order of their positions. It proves that these are
// without gaps, that each node has one task, which ended as it was told, and that no node began
// before the one before it was over.
func (a *arena) chains() map[string][]graph.Node {
	a.t.Helper()
	ctx := a.t.Context()
	var nodes []graph.Node
	cur, err := a.db.Collection("flow_nodes").Find(ctx, bson.D{})
	require.NoError(a.t, err)
	require.NoError(a.t, cur.All(ctx, &nodes))
	var tasks []struct {
		ID         string `bson:"_id"`
		Status     string `bson:"status"`
		Generation int64  `bson:"generation"`
		Attempt    int    `bson:"attempt"`
		Args       string `bson:"args"`

		WorkerStates []model.WorkerState `bson:"worker_states"`
	}
	cur, err = a.db.Collection("tasks").Find(ctx, bson.D{{Key: "type", Value: streamWork.Name()}})
	require.NoError(a.t, err)
	require.NoError(a.t, cur.All(ctx, &tasks))
	require.Len(a.t, tasks, len(nodes), "each node has one task")
	var marks []struct {
		Task  string    `bson:"task"`
		Life  int64     `bson:"life"`
		Began time.Time `bson:"began"`
	}
	cur, err = a.db.Collection("marks").Find(ctx, bson.D{})
	require.NoError(a.t, err)
	require.NoError(a.t, cur.All(ctx, &marks))
	ran, lives := map[string]*linkRan{}, map[string][]int64{}
	for _, m := range marks {
		r := ran[m.Task]
		if r == nil {
			r = &linkRan{first: m.Began, last: m.Began}
			ran[m.Task] = r
		}
		r.times++
		if m.Began.Before(r.first) {
			r.first = m.Began
		}
		if m.Began.After(r.last) {
			r.last = m.Began
		}
		lives[m.Task] = append(lives[m.Task], m.Life)
	}
	for _, t := range tasks {
		want := model.StatusSuccess
		if strings.HasSuffix(t.Args, " fails") {
			want = model.StatusFailure
		}
		require.Equal(a.t, want, model.Status(t.Status), "task %s", t.ID)
		require.NotNil(a.t, ran[t.ID], "task %s ran", t.ID)
		require.LessOrEqual(a.t, ran[t.ID].times, begunAtMost(t.Attempt, t.WorkerStates), "task %s: %+v", t.ID, t.WorkerStates)
		for _, life := range lives[t.ID] {
			require.Equal(a.t, t.Generation, life, "task %s has one life", t.ID)
		}
	}
	out := map[string][]graph.Node{}
	for _, n := range nodes {
		out[n.FlowID] = append(out[n.FlowID], n)
	}
	for id, chain := range out {
		slices.SortFunc(chain, func(x, y graph.Node) int { return cmp.Compare(x.Position, y.Position) })
		for i, n := range chain {
			require.EqualValues(a.t, i+1, n.Position, "stream %s: the positions have no gap", id)
			require.True(a.t, n.Status == graph.NodeSuccess || n.Status == graph.NodeError, "stream %s, node %s is %s", id, n.Node, n.Status)
			if i > 0 {
				before := chain[i-1]
				require.Equal(a.t, []string{before.Node}, n.After, "stream %s, node %s", id, n.Node)
				// An execution that was cut off may have begun again since: only the last one counts.
				require.False(a.t, ran[n.TaskID].first.Before(ran[before.TaskID].last), "stream %s: node %s began before %s, which is before it", id, n.Node, before.Node)
			}
		}
	}
	return out
}

// checkStreams proves that each node that was appended is in its stream once, and that the streams
// have the order of the appends.
func (a *arena) checkStreams(nodes, streams int) {
	a.t.Helper()
	chains := a.chains()
	type stored struct {
		ID       string    `bson:"_id"`
		Began    time.Time `bson:"began"`
		Answered time.Time `bson:"answered"`
		Tries    int       `bson:"tries"`
	}
	var noted []stored
	cur, err := a.db.Collection("appends").Find(a.t.Context(), bson.D{})
	require.NoError(a.t, err)
	require.NoError(a.t, cur.All(a.t.Context(), &noted))
	of := map[string]stored{}
	for _, s := range noted {
		of[s.ID] = s
	}
	place := map[string]int{}
	for id, chain := range chains {
		for i, n := range chain {
			place[id+"/"+n.Node] = i
		}
	}
	type part struct {
		stored
		first, last int // places of its nodes
	}
	parts, all := map[string][]part{}, 0
	for n := range streamAppenders {
		for k, p := range streamParts(n, nodes, streams) {
			id := "chaos/" + p.group
			x := part{stored: of[fmt.Sprint(n, "-", k)], first: len(place), last: -1}
			for i, node := range p.nodes {
				at, there := place[id+"/"+node.ID]
				require.True(a.t, there, "node %s of stream %s is there", node.ID, id)
				if i > 0 && x.Tries == 1 {
					require.Greater(a.t, at, x.last, "stream %s: the nodes of an append keep their order", id)
				}
				x.first, x.last = min(x.first, at), max(x.last, at)
				all++
			}
			parts[id] = append(parts[id], x)
		}
	}
	require.Len(a.t, place, all, "nothing else is in a stream")
	for id, list := range parts {
		for _, x := range list {
			for _, y := range list {
				if x.Answered.Before(y.Began) {
					require.Less(a.t, x.last, y.first, "stream %s: %s was answered before %s began", id, x.ID, y.ID)
				}
			}
		}
	}
	a.t.Logf("%d nodes in %d streams, %d appends", all, len(chains), len(noted))
}
