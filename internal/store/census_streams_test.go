package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// streamFleet is a database with streams.
type streamFleet struct {
	*testing.T
	*store.Store
}

// stream stores a stream whose window has nodes of those statuses, and behind it nodes that are not linked.
func (s streamFleet) stream(scene, group string, change func(*graph.Flow), unlinked int, window ...graph.NodeStatus) {
	s.Helper()
	id := scene + "/" + group
	f := &graph.Flow{ID: id, Kind: graph.KindStream, Key: group, Scene: scene, Group: group, Status: graph.StatusRunning, UpdatedAt: s.Clock.Now()}
	for i, status := range window {
		f.Nodes = append(f.Nodes, graph.Vertex{ID: fmt.Sprint(i)})
		f.States = append(f.States, graph.State{Status: status, At: s.Clock.Now()})
	}
	if change != nil {
		change(f)
	}
	_, err := s.Flows.Insert(s.Context(), f)
	require.NoError(s, err)
	var nodes []*graph.Node
	for i := range unlinked {
		name := fmt.Sprintf("%s/init-%d", id, i)
		nodes = append(nodes, &graph.Node{ID: name, FlowID: id, Node: name, No: int64(i + 1), Status: graph.NodeInit, Task: &model.Task{ID: name, Type: "t"}})
	}
	if len(nodes) > 0 {
		require.NoError(s, s.Nodes.Append(s.Context(), nodes))
	}
}

func suspended(f *graph.Flow) { f.Status = graph.StatusPending }
func closed(f *graph.Flow)    { f.Status, f.Closed = graph.StatusFinish, true }

func TestACensusCountsStreamsAndTheirBacklogByScene(t *testing.T) {
	s := streamFleet{t, permitted(t)}
	s.stream("bus", "idle", nil, 0, graph.NodeSuccess, graph.NodeError)
	s.stream("bus", "busy", nil, 3, graph.NodeSuccess, graph.NodeReady, graph.NodeWait, graph.NodeWait)
	s.stream("bus", "stopped", suspended, 0, graph.NodePending, graph.NodeWait)
	s.stream("bus", "over", closed, 0, graph.NodeError, graph.NodeWait)
	s.stream("bus", "ends", func(f *graph.Flow) { f.Closed = true }, 0, graph.NodeReady) // its task is being cancelled
	s.stream("bus-stop", "new", nil, 2)                                                  // "bus-" sorts before "bus/"
	_, err := s.Flows.Insert(t.Context(), &graph.Flow{ID: "bus/graph", Key: "graph", Tenant: "bus", Status: graph.StatusPending, UpdatedAt: s.Clock.Now(), States: []graph.State{{Status: graph.NodePending}}})
	require.NoError(t, err)

	c := counted(t, s.Store, store.Census{})
	require.Equal(t, []store.SceneCensus{
		{Scene: "bus", Open: 2, Suspended: 1, Closed: 2, Backlog: 3 + 3 + 2 + 1 + 1, SeenAt: c.At, Round: 1},
		{Scene: "bus-stop", Open: 1, Backlog: 2, SeenAt: c.At, Round: 1},
	}, c.Scenes)
	require.NoError(t, s.KeepCensus(t.Context(), c))
	kept, err := s.ReadCensus(t.Context())
	require.NoError(t, err)
	require.Equal(t, c.Scenes[0].Backlog, kept.Scenes[0].Backlog)
}

func TestScenesKeepTheirPlaceAndTheRestIsOther(t *testing.T) {
	s := streamFleet{t, permitted(t)}
	for i := range measure.Most + 20 {
		s.stream(fmt.Sprintf("s%03d", i), "g", nil, 1, graph.NodeReady)
	}
	now := s.Clock.Now()
	c := counted(t, s.Store, store.Census{Scenes: []store.SceneCensus{{Scene: "gone", SeenAt: now.Add(-time.Hour)}, {Scene: "long gone", SeenAt: now.Add(-48 * time.Hour)}}})
	require.Len(t, c.Scenes, measure.Most+1)
	require.Equal(t, store.SceneCensus{Scene: "gone", SeenAt: now.Add(-time.Hour), Round: c.Round}, c.Scenes[0])
	require.Equal(t, "s098", c.Scenes[measure.Most-1].Scene)
	require.Equal(t, store.SceneCensus{Scene: measure.Other, Open: 21, Backlog: 42, SeenAt: c.At, Round: c.Round}, c.Scenes[measure.Most])
	s.stream("aaa", "g", suspended, 0)
	s.stream("s050~", "g", closed, 0) // between two that are named
	again := counted(t, s.Store, c)
	for i, scene := range again.Scenes {
		require.Equal(t, c.Scenes[i].Scene, scene.Scene)
	}
	require.Equal(t, store.SceneCensus{Scene: measure.Other, Open: 21, Suspended: 1, Closed: 1, Backlog: 42, SeenAt: again.At, Round: again.Round}, again.Scenes[measure.Most])
}

func TestScenesThatTakeTooLongHaveTheNumbersOfTheCensusBefore(t *testing.T) {
	a := newAnswered(t)
	require.NoError(t, a.Ready(t.Context()))
	require.NoError(t, a.ReadClock(t.Context()))
	s := streamFleet{t, a.Store}
	s.stream("bus", "g", nil, 1, graph.NodeReady)
	first := counted(t, a.Store, store.Census{})
	require.EqualValues(t, 2, first.Scenes[0].Backlog)
	s.stream("bus", "h", nil, 1)
	var slow atomic.Bool
	a.rewrite(nil, func(command string, answer bson.D) bson.D {
		ofNodes := slices.ContainsFunc(answer, func(e bson.E) bool {
			return e.Key == "cursor" && strings.HasSuffix(fmt.Sprint(e.Value), `.flow_nodes"}`)
		})
		if command != "aggregate" || !ofNodes || !slow.Load() {
			return answer
		}
		return bson.D{field("ok", 0.0), field("code", number(50)), field("codeName", "MaxTimeMSExpired"), field("errmsg", "operation exceeded time limit")}
	})
	slow.Store(true)
	second, err := a.TakeCensus(t.Context(), first)
	require.NoError(t, err)
	require.False(t, second.Complete)
	require.Equal(t, first.Scenes[0].Open, second.Scenes[0].Open, "all numbers of a scene are of one time")
	require.Equal(t, first.Scenes[0].Backlog, second.Scenes[0].Backlog)
	slow.Store(false)
	third := counted(t, a.Store, second)
	require.EqualValues(t, 2, third.Scenes[0].Open)
	require.EqualValues(t, 3, third.Scenes[0].Backlog)
}
