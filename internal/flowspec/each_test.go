package flowspec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestANodeHasATaskForEachElement(t *testing.T) {
	s := diamond()
	s.Category, s.Creator, s.Args = "cat", "me", obj{"order": 7}
	priority := 8
	s.Nodes[3].Each, s.Nodes[3].Priority = &graph.Each{Items: obj{"$output": "a.parcels"}, Limit: 2}, &priority
	s.Nodes[3].Options.MaxErrorsPerWorker = 3
	s.Nodes[3].Args = obj{"parcel": obj{"$item": "id"}, "whole": obj{"$item": ""}, "order": obj{"$arg": "order"}, "by": obj{"$output": "b.name"}}
	f, err := Build(s, "k", now)
	require.NoError(t, err)
	v := &f.Nodes[3]
	require.Equal(t, &graph.Each{Items: `{"$output":"a.parcels"}`, Limit: 2, Max: 1000}, v.Each)
	main := f.Planned[3].Task
	require.Equal(t, NodeType, main.Type)
	require.Equal(t, model.StatusWait, main.Status)
	require.Zero(t, main.Options)
	output := func(node string) bson.RawValue {
		return value(t, map[string]any{"a": obj{"parcels": []obj{{"id": 1}, {"id": 2, "x": []int{3}}}}, "b": obj{"name": "bob"}}[node])
	}
	items, err := Elements(v, output)
	require.NoError(t, err)
	require.Len(t, items, 2)
	args, err := ElementArgs(v, items, output)
	require.NoError(t, err)
	require.JSONEq(t, `{"parcel":1,"whole":{"id":1},"order":7,"by":"bob"}`, jsonOf(args[0]))
	require.JSONEq(t, `{"parcel":2,"whole":{"id":2,"x":[3]},"order":7,"by":"bob"}`, jsonOf(args[1]))
	task := lifecycle.NewTask(Element(f, 3, 1, 2, args[1], true), now)
	require.Equal(t, "-/t/flow:k:d/1/2", task.ID)
	require.Equal(t, ElementID(f, 3, 1, 2), task.ID)
	require.Equal(t, &model.Origin{Kind: "flow", ID: "-/k", Node: "d", Generation: 2, Element: 2}, task.Origin)
	require.Equal(t, []any{"cat", "me", 8, 3, model.StatusWait}, []any{task.Category, task.Creator, task.Priority, task.Options.MaxErrorsPerWorker, task.Status})
}

func value(t *testing.T, v any) bson.RawValue {
	t.Helper()
	kind, raw, err := bson.MarshalValue(v)
	require.NoError(t, err)
	return bson.RawValue{Type: kind, Value: raw}
}

func TestWhatIsWrongWithEachIsNamed(t *testing.T) {
	for want, do := range map[string]func(s *graph.Spec, d *graph.NodeSpec){
		"nodes[3].each.items (node d) is null; want a list": func(_ *graph.Spec, d *graph.NodeSpec) { d.Each = &graph.Each{} },
		`nodes[3].each.items (node d) is "x"; want a list`:  func(_ *graph.Spec, d *graph.NodeSpec) { d.Each = &graph.Each{Items: "x"} },
		"nodes[3].each.items (node d) has 3 elements; at most 2 are allowed (each.max)": func(s *graph.Spec, d *graph.NodeSpec) {
			s.Args, d.Each = []int{1, 2, 3}, &graph.Each{Items: obj{"$arg": ""}, Max: 2}
		},
		"nodes[3].each.limit (node d) is -1; want 1 to 10000, or 0 for all at once": func(_ *graph.Spec, d *graph.NodeSpec) { d.Each = &graph.Each{Items: []int{1}, Limit: -1} },
		"nodes[3].each.max (node d) is 10001; want 1 to 10000, or 0 for 1000":       func(_ *graph.Spec, d *graph.NodeSpec) { d.Each = &graph.Each{Items: []int{1}, Max: 10_001} },
		`nodes[3].each.items (node d) is {"x":{"$output":"b"}}; want a list, or a reference to one`: func(_ *graph.Spec, d *graph.NodeSpec) {
			d.Each = &graph.Each{Items: obj{"x": obj{"$output": "b"}}}
		},
		"nodes[3].each.items.$output (node d) names node x, which does not exist": func(_ *graph.Spec, d *graph.NodeSpec) { d.Each = &graph.Each{Items: obj{"$output": "x"}} },
		"nodes[3].each.items.$item (node d) is for the args of a node with each":  func(_ *graph.Spec, d *graph.NodeSpec) { d.Each = &graph.Each{Items: obj{"$item": ""}} },
		"nodes[3].args.x.$item (node d) is for the args of a node with each":      func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"x": obj{"$item": ""}} },
		"nodes[3].each (node d) is given, but the node has wait; it is for nodes with a type": func(_ *graph.Spec, d *graph.NodeSpec) {
			d.Type, d.Each, d.Wait = "", &graph.Each{Items: []int{1}}, &graph.Wait{For: 1e9}
		},
	} {
		s := diamond()
		do(s, &s.Nodes[3])
		f, err := Build(s, "k", now)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.Nil(t, f)
		require.EqualError(t, err, want)
	}
}

func TestTheElementsOfANodeAreBounded(t *testing.T) {
	v := &graph.Vertex{Each: &graph.Each{Items: `{"$output":"a"}`, Max: 2}, Args: `{"x":{"$item":""},"y":{"$output":"b"}}`}
	for want, out := range map[string]any{
		"each.items is null; want a list":                             nil,
		`each.items is {"a":1}; want a list`:                          obj{"a": 1},
		"each.items has 3 elements; at most 2 are allowed (each.max)": []int{1, 2, 3},
		"each.items is something else; want a list":                   strings.Repeat("x", 100),
	} {
		output := bson.RawValue{}
		if out != nil {
			output = value(t, out)
		}
		_, err := Elements(v, func(string) bson.RawValue { return output })
		require.EqualError(t, err, want)
	}
	large := value(t, strings.Repeat("x", 200_000))
	items := make([]bson.RawValue, 100)
	for i := range items {
		items[i] = value(t, i)
	}
	_, err := ElementArgs(v, items, func(string) bson.RawValue { return large })
	require.ErrorContains(t, err, "each has arguments of more than 12582912 bytes as BSON for all its elements together")
	tooLarge := value(t, strings.Repeat("x", 300_000))
	_, err = ElementArgs(v, items[:2], func(string) bson.RawValue { return tooLarge })
	require.ErrorContains(t, err, "each[0].args has more than 262144 bytes")
}
