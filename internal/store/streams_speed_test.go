package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
)

// The numbers are those of a count of all nodes, however many a stream has, and how they lie in time.
func TestTheSpeedOfAStreamIsExact(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	s := newStepping(t)
	var streams []*graph.Flow
	want := map[string]store.Speed{}
	add := func(n, kept int, age func(i int) time.Duration) *graph.Flow {
		doc := &graph.Flow{ID: fmt.Sprint("s/", len(streams)), Kind: graph.KindStream, Trimmed: n - kept}
		var nodes []*graph.Node
		speed := store.Speed{}
		for i := range n {
			ended := s.now.Add(-age(i)).Truncate(time.Millisecond)
			if age(i) <= 5*time.Minute {
				speed.FiveMinutes++
			}
			if age(i) <= time.Hour {
				speed.Hour++
			}
			nodes = append(nodes, &graph.Node{ID: fmt.Sprintf("%s/n%d", doc.ID, i), FlowID: doc.ID, Node: fmt.Sprint("n", i), Position: int64(i + 1), Status: graph.NodeSuccess, At: ended, Rev: 1})
			if i >= n-kept {
				doc.States = append(doc.States, graph.State{Status: graph.NodeSuccess, At: ended})
			}
		}
		doc.States = append(doc.States, graph.State{Status: graph.NodeReady, At: s.now}, graph.State{Status: graph.NodeWait})
		if n > 0 {
			requirePut(t, s.Nodes.Put, nodes)
		}
		streams, want[doc.ID] = append(streams, doc), speed
		return doc
	}
	for _, n := range []int{0, 1, 2, 3, 64, 65, 500} {
		for _, kept := range []int{0, min(1, n), min(3, n)} {
			add(n, kept, func(int) time.Duration { return 0 })
			add(n, kept, func(int) time.Duration { return 2 * time.Hour })
			add(n, kept, func(i int) time.Duration { return time.Duration(n-i) * 10 * time.Second })
			add(n, kept, func(i int) time.Duration { return time.Duration(n-i) * time.Minute })
			add(n, kept, func(i int) time.Duration { return time.Duration((n-i)*(n-i)) * time.Second })
		}
	}
	got, err := s.StreamSpeeds(t.Context(), streams, s.now)
	require.NoError(t, err)
	require.Equal(t, want, got)

	gone := add(100, 1, func(i int) time.Duration { return time.Duration(100-i) * time.Second })
	_, err = s.db.Collection("flow_nodes").DeleteMany(t.Context(), bson.D{{Key: "flow_id", Value: gone.ID}, {Key: "position", Value: bson.D{{Key: "$lte", Value: 90}}}})
	require.NoError(t, err)
	got, err = s.StreamSpeeds(t.Context(), []*graph.Flow{gone}, s.now)
	require.NoError(t, err)
	require.Equal(t, map[string]store.Speed{gone.ID: {FiveMinutes: 10, Hour: 10}}, got, "those that were deleted have ended long ago")

	late := add(10, 1, func(int) time.Duration { return time.Second })
	_, err = s.db.Collection("flow_nodes").UpdateMany(t.Context(), bson.D{{Key: "flow_id", Value: late.ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "READY"}, {Key: "at", Value: s.now.Add(-2 * time.Hour)}}}})
	require.NoError(t, err)
	got, err = s.StreamSpeeds(t.Context(), []*graph.Flow{late}, s.now)
	require.NoError(t, err)
	require.Equal(t, map[string]store.Speed{late.ID: {FiveMinutes: 10, Hour: 10}}, got, "the flow knows that they have ended; the records do not yet")
}
