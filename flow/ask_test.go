package flow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestWhatAPersonAnswersReachesTheNextNodes(t *testing.T) {
	t.Parallel()
	told := make(chan string, 10)
	w := newWorld(t, func(c *flow.Config) {
		c.OnPending = func(_ context.Context, _ *graph.Flow, node, reason string) { told <- node + ": " + reason }
	})
	b := node("b", "a")
	b.Args = map[string]any{"terms": []any{flow.Output("ask.n"), 1}, "text": flow.Output("ask.how")}
	f := w.start(graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		node("a"),
		{ID: "ask", After: []string{"a"}, Ask: &graph.Ask{Title: "how many?", Fields: []graph.Field{{Name: "n", Kind: "number"}, {Name: "how"}}}},
		func() graph.NodeSpec { b.After = []string{"ask"}; return b }(),
	}})
	w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, "ask: it asks: how many?", testdb.Receive(t, told))
	_, err := w.flows.Answer(t.Context(), f.ID, "ask", map[string]any{"n": "many"}, "")
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, `flow -/f, node ask: values.n is "many"; want a number`)
	_, err = w.flows.Answer(t.Context(), f.ID, "ask", map[string]any{"n": 4, "how": "well"}, "counted")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, sum{Sum: 5, Text: "well"}, w.output(f.ID, "b"))
}
