package flowspec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

var now = time.Date(2026, 11, 23, 13, 0, 0, 0, time.UTC)

type obj = map[string]any

// diamond is a good flow: a, then b and c, then d.
func diamond() *graph.Spec {
	return &graph.Spec{Key: "k", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t"},
		{ID: "b", Type: "t", After: []string{"a"}},
		{ID: "c", Type: "t", After: []string{"a"}},
		{ID: "d", Type: "t", After: []string{"b", "c"}},
	}}
}

func ids(f *graph.Flow) (out []string) {
	for _, v := range f.Nodes {
		out = append(out, v.ID)
	}
	return out
}

func jsonOf(v bson.RawValue) string { return string(codec.ValueJSON(v)) }

func TestAFlowIsStoredWithItsTasks(t *testing.T) {
	priority := 7
	s := &graph.Spec{
		Key: "order-1", Tenant: "shop", Creator: "me", Category: "cat", Description: "an order", Ext: obj{"x": 1},
		Args: obj{"order": obj{"id": "o1", "items": []int{5, 6}}},
		Nodes: []graph.NodeSpec{
			{
				ID: "end", Type: "finish", After: []string{"ship", "pay"},
				Join: graph.Join{Strategy: graph.Custom, Custom: "judge", Context: obj{"seen": 0}},
				Args: obj{"receipt": obj{"$output": "pay.receipt.no"}, "order": obj{"$arg": "order.id"}, "as is": obj{"$literal": []int{1}}},
			},
			{
				ID: "pay", Type: "pay", After: []string{"start"}, OnFailure: graph.Continue, Priority: &priority,
				Args:    obj{"id": obj{"$arg": "order.id"}, "second": []any{obj{"$arg": "order.items.1"}}, "none": obj{"$arg": "order.none.x"}, "x": obj{"$literal": "$y"}},
				Options: model.Options{MaxErrorsPerWorker: 3},
			},
			{ID: "start", Type: "begin", Args: obj{"$arg": ""}},
			{
				ID: "ship", Type: "ship", After: []string{"start", "pay"}, Join: graph.Join{Strategy: graph.These, Nodes: []string{"pay"}},
				When: map[string]any{"pay": obj{"output.amount": obj{"$gt": 100}}},
			},
		},
	}
	f, err := Build(s, "order-1", now)
	require.NoError(t, err)
	require.Equal(t, "shop/order-1", f.ID)
	require.Equal(t, []string{"start", "pay", "ship", "end"}, ids(f))
	require.Equal(t, graph.Flow{
		ID: "shop/order-1", Key: "order-1", Tenant: "shop", Creator: "me", Description: "an order", Ext: f.Ext,
		Status: graph.StatusRunning, Rev: 1, RunningAt: now, CreatedAt: now, UpdatedAt: now, PlannedAt: now,
		Nodes: f.Nodes, States: f.States, Planned: f.Planned,
	}, *f)
	require.JSONEq(t, `{"x":1}`, jsonOf(f.Ext))

	always, large := "", `{"output.amount":{"$gt":100}}`
	require.Equal(t, graph.Vertex{ID: "start", Type: "begin", Join: graph.AllSucceeded, OnFailure: graph.Suspend}, f.Nodes[0])
	require.Equal(t, graph.Vertex{ID: "pay", Type: "pay", After: []int{0}, Join: graph.AllSucceeded, OnFailure: graph.Continue}, f.Nodes[1])
	require.Equal(t, graph.Vertex{
		ID: "ship", Type: "ship", After: []int{0, 1}, When: []string{always, large}, Join: graph.These, These: []int{1}, OnFailure: graph.Suspend,
	}, f.Nodes[2])
	require.Equal(t, graph.Vertex{
		ID: "end", Type: "finish", After: []int{2, 1}, Join: graph.Custom, Custom: "judge", Context: f.States[3].Context, OnFailure: graph.Suspend, Args: f.Nodes[3].Args,
	}, f.Nodes[3])
	require.JSONEq(t, `{"receipt":{"$output":"pay.receipt.no"},"order":"o1","as is":[1]}`, f.Nodes[3].Args)

	wait := graph.State{Status: graph.NodeWait, At: now}
	require.Equal(t, []graph.State{{Status: graph.NodeReady, At: now}, wait, wait}, f.States[:3])
	require.Equal(t, graph.NodeWait, f.States[3].Status)
	require.JSONEq(t, `{"seen":0}`, jsonOf(f.States[3].Context))

	for i, want := range []struct {
		planned, id, args string
		status            model.Status
		priority          int
	}{
		{"store-0", "shop/begin/flow:order-1:start", `{"order":{"id":"o1","items":[5,6]}}`, model.StatusNew, 5},
		{"store-1", "shop/pay/flow:order-1:pay", `{"id":"o1","second":[6],"none":null,"x":"$y"}`, model.StatusWait, 7},
		{"store-2", "shop/ship/flow:order-1:ship", `null`, model.StatusWait, 5},
		{"store-3", "shop/finish/flow:order-1:end", `null`, model.StatusWait, 5},
	} {
		p, task := f.Planned[i], f.Planned[i].Task
		require.Equal(t, graph.Planned{ID: want.planned, Node: i, Task: task}, p)
		require.Equal(t, want.id, task.ID)
		require.JSONEq(t, want.args, jsonOf(task.Args))
		require.Equal(t, want.status, task.Status)
		require.Equal(t, want.priority, task.Priority)
		require.Equal(t, &model.Origin{Kind: "flow", ID: "shop/order-1", Node: f.Nodes[i].ID}, task.Origin)
		require.Equal(t, []string{"shop", "cat", "me"}, []string{task.Tenant, task.Category, task.Creator})
	}
	require.Equal(t, 3, f.Planned[1].Task.Options.MaxErrorsPerWorker)
}

func raw(t *testing.T, v any) bson.Raw {
	t.Helper()
	data, err := bson.Marshal(v)
	require.NoError(t, err)
	return data
}

func TestTheDocumentIsReadAsItWasWritten(t *testing.T) {
	s := diamond()
	s.Nodes[3].Args, s.Nodes[3].When = obj{"$output": "a"}, map[string]any{"b": obj{"output": 1}}
	f, err := Build(s, "k", now)
	require.NoError(t, err)
	require.Equal(t, "-/k", f.ID)
	require.Empty(t, f.Nodes[1].When, "no conditions: none is stored")

	data := raw(t, f)
	var back graph.Flow
	require.NoError(t, bson.Unmarshal(data, &back))
	require.Equal(t, jsonOf(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: data}), jsonOf(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw(t, back)}))
	require.Equal(t, "d", back.Planned[3].Task.Origin.Node)
}

func TestTheNullTenantIsNone(t *testing.T) {
	s := diamond()
	s.Tenant = model.NoTenant
	f, err := Build(s, "k", now)
	require.NoError(t, err)
	require.Equal(t, "-/k", f.ID)
	require.Empty(t, f.Tenant)
}

// wrong are flows with one thing wrong each, and all that is said of them.
var wrong = []struct {
	name string
	do   func(s *graph.Spec, d *graph.NodeSpec) // d is the last node
	want []string
}{
	{"tenant", func(s *graph.Spec, _ *graph.NodeSpec) { s.Tenant = "a/b" }, []string{`tenant is "a/b"; want 1 to 100 of a-z A-Z 0-9 . _ -`}},
	{"creator", func(s *graph.Spec, _ *graph.NodeSpec) { s.Creator = strings.Repeat("x", 201) }, []string{"creator has 201 bytes; at most 200 are allowed"}},
	{"category", func(s *graph.Spec, _ *graph.NodeSpec) { s.Category = "\xff" }, []string{"category must be valid UTF-8 without a NUL byte"}},
	{"description", func(s *graph.Spec, _ *graph.NodeSpec) { s.Description = strings.Repeat("x", 4097) }, []string{"description has 4097 bytes; at most 4096 are allowed"}},
	{"description of bytes", func(s *graph.Spec, _ *graph.NodeSpec) { s.Description = "\xff" }, []string{"description must be valid UTF-8 without a NUL byte"}},
	{"args", func(s *graph.Spec, _ *graph.NodeSpec) { s.Args = obj{"$arg": "x"} }, []string{"args.$arg has a name that starts with $, which MongoDB does not store"}},
	{"large args", func(s *graph.Spec, _ *graph.NodeSpec) { s.Args = strings.Repeat("x", 300_000) }, []string{"args has 300005 bytes as BSON; at most 262144 are allowed"}},
	{"ext", func(s *graph.Spec, _ *graph.NodeSpec) { s.Ext = strings.Repeat("x", 70_000) }, []string{"ext has 70005 bytes as BSON; at most 65536 are allowed"}},
	{"no nodes", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes = nil }, []string{"nodes are missing; a flow has at least one"}},
	{"too many nodes", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes = make([]graph.NodeSpec, 10_001) }, []string{"nodes are 10001; at most 10000 are allowed"}},

	{"id", func(_ *graph.Spec, d *graph.NodeSpec) { d.ID = "" }, []string{"nodes[3].id is empty; want 1 to 64 of a-z A-Z 0-9 _ -"}},
	{"null node", func(_ *graph.Spec, d *graph.NodeSpec) { d.ID = "N/A" }, []string{`nodes[3].id (node "N/A") is N/A, the name of no node; want 1 to 64 of a-z A-Z 0-9 _ -`}},
	{"id with a dot", func(_ *graph.Spec, d *graph.NodeSpec) { d.ID = "d.e" }, []string{`nodes[3].id (node "d.e") is "d.e"; want 1 to 64 of a-z A-Z 0-9 _ -`}},
	{"long id", func(_ *graph.Spec, d *graph.NodeSpec) { d.ID = strings.Repeat("d", 65) }, []string{`nodes[3].id (node "` + strings.Repeat("d", 65) + `") is "` + strings.Repeat("d", 65) + `"; want 1 to 64 of a-z A-Z 0-9 _ -`}},
	{"id twice", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes[2].ID, s.Nodes[3].After = "b", []string{"b"} }, []string{"nodes[2].id (node b) is that of nodes[1], too"}},
	{"no type", func(_ *graph.Spec, d *graph.NodeSpec) { d.Type = "" }, []string{"nodes[3].type (node d) is empty; want 1 to 100 of a-z A-Z 0-9 . _ -"}},
	{"type", func(_ *graph.Spec, d *graph.NodeSpec) { d.Type = "a b" }, []string{`nodes[3].type (node d) is "a b"; want 1 to 100 of a-z A-Z 0-9 . _ -`}},

	{"unknown parent", func(_ *graph.Spec, d *graph.NodeSpec) { d.After = append(d.After, "x") }, []string{"nodes[3].after[2] (node d) is x; there is no such node"}},
	{"empty parent", func(_ *graph.Spec, d *graph.NodeSpec) { d.After = append(d.After, "") }, []string{`nodes[3].after[2] (node d) is ""; there is no such node`}},
	{"parent twice", func(_ *graph.Spec, d *graph.NodeSpec) { d.After = append(d.After, "b") }, []string{"nodes[3].after[2] (node d) is b, which is named before"}},
	{"its own parent", func(_ *graph.Spec, d *graph.NodeSpec) { d.After = append(d.After, "d") }, []string{"nodes[3].after[2] (node d) is the node itself"}},
	{"two first nodes", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes[2].After = nil }, []string{"nodes have 2 first nodes, which have no parents; want exactly one: a, c"}},
	{"two last nodes", func(_ *graph.Spec, d *graph.NodeSpec) { d.After = []string{"b"} }, []string{"nodes have 2 last nodes, which are the parent of none; want exactly one: c, d"}},
	{"cycle", func(s *graph.Spec, d *graph.NodeSpec) {
		s.Nodes = append(s.Nodes, graph.NodeSpec{ID: "e", Type: "t", After: []string{"d"}})
		s.Nodes[1].After = append(s.Nodes[1].After, "d")
	}, []string{"nodes have a cycle: b -> d -> b"}},
	{"cycle of all", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes[0].After = []string{"d"} }, []string{
		"nodes have no first node: each has a parent; want exactly one", "nodes have no last node: each is the parent of another; want exactly one", "nodes have a cycle: a -> b -> d -> a",
	}},
	{"island", func(s *graph.Spec, _ *graph.NodeSpec) {
		s.Nodes = append(s.Nodes, graph.NodeSpec{ID: "x", Type: "t", After: []string{"y"}}, graph.NodeSpec{ID: "y", Type: "t", After: []string{"x"}})
	}, []string{"nodes have a cycle: x -> y -> x"}},

	{"strategy", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join.Strategy = "any" }, []string{`nodes[3].join.strategy (node d) is "any"; want one of all_succeeded, all_ended, at_least, these, custom`}},
	{"policy", func(_ *graph.Spec, d *graph.NodeSpec) { d.OnFailure = "retry" }, []string{`nodes[3].on_failure (node d) is "retry"; want one of suspend, continue, end`}},
	{"join without parents", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes[0].Join.Strategy = graph.AllSucceeded }, []string{"nodes[0].join (node a) is given, but the node has no parents"}},
	{"n too small", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join.Strategy = graph.AtLeast }, []string{"nodes[3].join.n (node d) is 0; want 1 to 2, the number of its parents"}},
	{"n too large", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join = graph.Join{Strategy: graph.AtLeast, N: 3} }, []string{"nodes[3].join.n (node d) is 3; want 1 to 2, the number of its parents"}},
	{"n of another", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join.N = 1 }, []string{"nodes[3].join.n (node d) is given, but the strategy is all_succeeded; it belongs to at_least"}},
	{"no nodes of these", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join.Strategy = graph.These }, []string{"nodes[3].join.nodes (node d) are missing; name the parents that must succeed"}},
	{"these no parent", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.Join = graph.Join{Strategy: graph.These, Nodes: []string{"b", "a", "x", "b"}}
	}, []string{
		"nodes[3].join.nodes[1] (node d) is a, which is no parent of the node",
		"nodes[3].join.nodes[2] (node d) is x, which is no parent of the node",
		"nodes[3].join.nodes[3] (node d) is b, which is named before",
	}},
	{"nodes of another", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.Join = graph.Join{Strategy: graph.AllEnded, Nodes: []string{"b"}}
	}, []string{
		"nodes[3].join.nodes (node d) is given, but the strategy is all_ended; it belongs to these",
	}},
	{"no custom", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join.Strategy = graph.Custom }, []string{"nodes[3].join.custom (node d) is empty; want 1 to 100 of a-z A-Z 0-9 . _ -"}},
	{"custom of another", func(_ *graph.Spec, d *graph.NodeSpec) { d.Join.Custom, d.Join.Context = "f", 1 }, []string{
		"nodes[3].join.custom (node d) is given, but the strategy is all_succeeded; it belongs to custom",
		"nodes[3].join.context (node d) is given, but the strategy is all_succeeded; it belongs to custom",
	}},
	{"context", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.Join = graph.Join{Strategy: graph.Custom, Custom: "f", Context: obj{"$x": 1}}
	}, []string{"nodes[3].join.context.$x (node d) has a name that starts with $, which MongoDB does not store"}},

	{"when of no parent", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.When = map[string]any{"a": obj{"output": 1}}
	}, []string{"nodes[3].when.a (node d) is a condition on no parent of the node"}},
	{"when that is no object", func(_ *graph.Spec, d *graph.NodeSpec) { d.When = map[string]any{"b": true, "c": nil} }, []string{
		`nodes[3].when.b (node d) is no filter; want one on output, such as {"output.amount": {"$gt": 100}}`,
		`nodes[3].when.c (node d) is no filter; want one on output, such as {"output.amount": {"$gt": 100}}`,
	}},
	{"when that does not compile", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.When = map[string]any{"b": obj{"output": obj{"$more": 1}}}
	}, []string{"nodes[3].when.b (node d) is no filter: BadValue: unknown operator: $more"}},
	{"when of another field", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.When = map[string]any{"b": obj{"$or": []any{obj{"output.x": 1}, obj{"amount": 1}}}}
	}, []string{`nodes[3].when.b (node d) asks for "amount"; want output or what is in it, such as output.amount`}},

	{"unknown reference", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = []any{obj{"x": obj{"$out": "b"}}} }, []string{"nodes[3].args[0].x.$out (node d) is not known; want $output, $arg or $literal"}},
	{"reference that is not alone", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$output": "b", "y": 1} }, []string{"nodes[3].args.$output (node d) has a name that starts with $, which is only for a reference that is alone in its object"}},
	{"output that is no text", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$output": 5} }, []string{`nodes[3].args.$output (node d) is 5; want text, such as "order.id"`}},
	{"arg that is no text", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$arg": nil} }, []string{`nodes[3].args.$arg (node d) is null; want text, such as "order.id"`}},
	{"output of no node", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$output": "x.y"} }, []string{"nodes[3].args.$output (node d) names node x, which does not exist"}},
	{"output of nothing", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$output": ""} }, []string{`nodes[3].args.$output (node d) names node "", which does not exist`}},
	{"output of itself", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$output": "d"} }, []string{"nodes[3].args.$output (node d) names node d, which does not come before this one"}},
	{"output of a sibling", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes[2].Args = obj{"$output": "b"} }, []string{"nodes[2].args.$output (node c) names node b, which does not come before this one"}},
	{"output of a child", func(s *graph.Spec, _ *graph.NodeSpec) { s.Nodes[0].Args = obj{"$output": "d"} }, []string{"nodes[0].args.$output (node a) names node d, which does not come before this one"}},
	{"literal that is not stored", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = obj{"$literal": []any{obj{"$output": "b"}}} }, []string{"nodes[3].args.$literal[0].$output (node d) has a name that starts with $, which MongoDB does not store"}},
	{"large args of a node", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = strings.Repeat("x", 300_000) }, []string{"nodes[3].args (node d) has 300005 bytes as BSON; at most 262144 are allowed"}},
	{"args that grow", func(s *graph.Spec, d *graph.NodeSpec) {
		s.Args = strings.Repeat("x", 200_000)
		d.Args = []any{obj{"$arg": ""}, obj{"$arg": ""}, obj{"$arg": ""}}
	}, []string{"nodes[3].args (node d) has more than 262144 bytes as BSON when its references are filled in; at most that many are allowed"}},
	{"args that are no JSON", func(_ *graph.Spec, d *graph.NodeSpec) { d.Args = json.RawMessage(`{"a":1,"a":2}`) }, []string{"nodes[3].args.a (node d) occurs twice"}},
	{"args that nest too deep", func(s *graph.Spec, d *graph.NodeSpec) { s.Args, d.Args = deep(60, 1), deep(60, obj{"$arg": ""}) }, []string{
		"nodes[3].args" + strings.Repeat("[0]", 60) + " (node d) is nested deeper than 90 levels",
	}},

	{"priority", func(_ *graph.Spec, d *graph.NodeSpec) { ten := 10; d.Priority = &ten }, []string{"nodes[3].priority (node d) is 10; want 0 to 9, 9 runs first"}},
	{"options", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.Options = model.Options{Retention: -1, Callback: &model.Callback{Success: &model.CallbackTarget{URL: "x"}}}
	}, []string{
		"nodes[3].options.retention (node d) is -1ns; it cannot be negative",
		`nodes[3].options.callback.success.url (node d) is "x"; want an absolute http or https address`,
	}},
	{"options of the type", func(_ *graph.Spec, d *graph.NodeSpec) {
		d.Type, d.Options = input.CallbackType, model.Options{Callback: &model.Callback{Error: &model.CallbackTarget{URL: "http://localhost/"}}}
	}, []string{
		"nodes[3].options.callback (node d) cannot be set for tasks of type mscheduler.callback: the delivery of a callback has no callback of its own",
		`nodes[3].type (node d) is "mscheduler.callback"; the types that begin with mscheduler. do the work of mscheduler itself`,
	}},
}

func deep(levels int, v any) any {
	for range levels {
		v = []any{v}
	}
	return v
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for _, w := range wrong {
		t.Run(w.name, func(t *testing.T) {
			s := diamond()
			w.do(s, &s.Nodes[3])
			f, err := Build(s, "k", now)
			require.ErrorIs(t, err, model.ErrInvalid)
			require.Nil(t, f)
			require.Equal(t, w.want, strings.Split(err.Error(), "\n"))
		})
	}
}

// Whatever else is wrong, nothing is built, and each error names its field.
func TestAnyMistakesTogetherAreRefused(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := diamond()
		joined := false
		for _, w := range rapid.SliceOfN(rapid.SampledFrom(wrong), 1, 6).Draw(r, "mistakes") {
			if len(s.Nodes) < 4 || len(s.Nodes) >= 10 {
				continue
			}
			d := &s.Nodes[3]
			before := d.Join
			w.do(s, d)
			if reflect.DeepEqual(d.Join, before) {
				continue
			}
			if joined { // two mistakes in a join may be none together: a strategy, and what belongs to it
				d.Join = before
			}
			joined = true
		}
		f, err := Build(s, "k", now)
		require.ErrorIs(r, err, model.ErrInvalid)
		require.Nil(r, f)
		all, _ := err.(interface{ Unwrap() []error })
		for _, e := range all.Unwrap() {
			var field *model.InvalidError
			require.ErrorAs(r, e, &field)
			require.NotEmpty(r, field.Field)
		}
	})
}

func TestAllThatIsWrongIsNamedAtOnce(t *testing.T) {
	s := diamond()
	s.Tenant, s.Creator = "a b", "\xff"
	s.Nodes[0].After = []string{"c"}
	s.Nodes[1].ID = "N/A"
	s.Nodes[1].OnFailure = "x"
	s.Nodes[3].Args = []any{obj{"$output": "gone"}, obj{"$x": 1}}
	s.Nodes[3].Join.N = 4
	_, err := Build(s, "", now)
	require.Equal(t, []string{
		"key is empty",
		`tenant is "a b"; want 1 to 100 of a-z A-Z 0-9 . _ -`,
		"creator must be valid UTF-8 without a NUL byte",
		`nodes[1].id (node "N/A") is N/A, the name of no node; want 1 to 64 of a-z A-Z 0-9 _ -`,
		"nodes[3].after[0] (node d) is b; there is no such node",
		"nodes have no first node: each has a parent; want exactly one",
		`nodes have 2 last nodes, which are the parent of none; want exactly one: "N/A", d`,
		"nodes have a cycle: a -> c -> a",
		`nodes[1].on_failure (node "N/A") is "x"; want one of suspend, continue, end`,
		"nodes[3].join.n (node d) is given, but the strategy is all_succeeded; it belongs to at_least",
		"nodes[3].args[0].$output (node d) names node gone, which does not exist",
		"nodes[3].args[1].$x (node d) is not known; want $output, $arg or $literal",
	}, strings.Split(err.Error(), "\n"))
}

func TestTheKeyOfEveryTaskMustBeAKey(t *testing.T) {
	s := diamond()
	s.Nodes[3].ID = "end-of-all"
	fits := strings.Repeat("k", 400-len("flow::end-of-all"))
	_, err := Build(s, fits, now)
	require.NoError(t, err)
	_, err = Build(s, fits+"k", now)
	require.EqualError(t, err, "key has 385 bytes, which makes 401 of the key of the task of node end-of-all; at most 400 are allowed")
	_, err = Build(s, "\x00", now)
	require.EqualError(t, err, "key must be valid UTF-8 without a NUL byte")
	_, err = Build(s, strings.Repeat("k", 401), now)
	require.EqualError(t, err, "key has 401 bytes; at most 400 are allowed")
}

func TestAFlowHasAtMostTwelveMegabytes(t *testing.T) {
	s := chain(100)
	for i := range s.Nodes {
		s.Nodes[i].Args = strings.Repeat("x", 125_500)
	}
	s.Nodes[0].Args = nil
	_, err := Build(s, "k", now)
	require.NoError(t, err)
	s.Nodes[0].Args = strings.Repeat("x", 150_000)
	_, err = Build(s, "k", now)
	require.ErrorIs(t, err, model.ErrInvalid)
	require.Regexp(t, `^nodes are too large: the flow has 126\d{5} bytes; at most 12582912 are allowed$`, err.Error())

	s.Args = strings.Repeat("x", 250_000)
	for i := range s.Nodes {
		s.Nodes[i].Args = obj{"$arg": ""}
	}
	_, err = Build(s, "k", now)
	require.EqualError(t, err, "nodes have arguments of more than 12582912 bytes as BSON in total: the flow is too large; keep data elsewhere and refer to it")
}
