package flowplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

func TestTheTimesOfANodeAreThoseOfItsLife(t *testing.T) {
	began := time.Unix(1_800_000_000, 0).UTC()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	claimed := func(seconds ...int) *model.Task {
		task := &model.Task{StartTime: began}
		for _, s := range seconds {
			task.WorkerStates = append(task.WorkerStates, model.WorkerState{ClaimedAt: at(s), Unstarted: s < 0})
		}
		return task
	}
	retried := claimed(25)
	retried.StartTime = at(21)
	for name, c := range map[string]struct {
		node    graph.Vertex
		state   graph.State
		task    *model.Task
		ready   int // -1 = never
		started int
		ended   int
	}{
		"waits for its parents":        {graph.Vertex{Type: "t", After: []int{0, 1}}, graph.State{Status: graph.NodeWait, At: at(0)}, claimed(), -1, -1, -1},
		"is ready":                     {graph.Vertex{Type: "t", After: []int{0, 1}}, graph.State{Status: graph.NodeReady, At: at(7)}, claimed(), 7, -1, -1},
		"runs":                         {graph.Vertex{Type: "t", After: []int{0, 1}}, graph.State{Status: graph.NodeReady, At: at(7)}, claimed(9), 7, 9, -1},
		"was given back unstarted":     {graph.Vertex{Type: "t", After: []int{0, 1}}, graph.State{Status: graph.NodeReady, At: at(7)}, claimed(-1, 9), 7, 9, -1},
		"has ended, after an error":    {graph.Vertex{Type: "t", After: []int{0, 1}}, graph.State{Status: graph.NodeSuccess, At: at(20)}, claimed(15, 9), 7, 9, 20},
		"did not need its last parent": {graph.Vertex{Type: "t", After: []int{0, 1}, Join: graph.AtLeast}, graph.State{Status: graph.NodeSuccess, At: at(20)}, claimed(6), 5, 6, 20},
		"the first node":               {graph.Vertex{Type: "t"}, graph.State{Status: graph.NodeSuccess, At: at(20)}, claimed(2), 0, 2, 20},
		"runs in another life":         {graph.Vertex{Type: "t", After: []int{0}}, graph.State{Status: graph.NodeError, At: at(30), Life: 1}, retried, 21, 25, 30},
		"is skipped":                   {graph.Vertex{Type: "t", After: []int{0}}, graph.State{Status: graph.NodeSkipped, At: at(8)}, claimed(), -1, -1, 8},
		"waits for a time":             {graph.Vertex{For: time.Hour, After: []int{1}}, graph.State{Status: graph.NodeReady, At: at(7)}, nil, 7, 7, -1},
		"asks a person":                {graph.Vertex{Ask: &graph.Ask{}, After: []int{1}}, graph.State{Status: graph.NodePending, Own: true, At: at(7)}, nil, 7, 7, -1},
		"waits behind a PENDING node":  {graph.Vertex{Type: "t", After: []int{1}}, graph.State{Status: graph.NodePending, At: at(7)}, claimed(), -1, -1, -1},
		"has failed":                   {graph.Vertex{Type: "t", After: []int{1}}, graph.State{Status: graph.NodePending, Own: true, At: at(20)}, claimed(9), 7, 9, -1},
		"its task moved and is gone":   {graph.Vertex{Type: "t", After: []int{1}}, graph.State{Status: graph.NodeSuccess, At: at(20)}, nil, 7, -1, 20},
	} {
		f := &graph.Flow{
			CreatedAt: began,
			Nodes:     []graph.Vertex{{ID: "a"}, {ID: "b"}, c.node},
			States:    []graph.State{{Status: graph.NodeSuccess, At: at(5)}, {Status: graph.NodeSuccess, At: at(7)}, c.state},
		}
		want := Times{}
		for to, s := range map[*time.Time]int{&want.Ready: c.ready, &want.Started: c.started, &want.Ended: c.ended} {
			if s >= 0 {
				*to = at(s)
			}
		}
		require.Equal(t, want, TimesOf(f, 2, c.task), name)
	}
}
