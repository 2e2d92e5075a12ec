package flowspec

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

func TestANodeThatWaitsHasNoTask(t *testing.T) {
	s := diamond()
	s.Args = obj{"at": "2026-11-23T18:30:00+01:00"}
	s.Nodes[1].Type, s.Nodes[1].Wait = "", &graph.Wait{For: 10 * time.Minute}
	s.Nodes[2].Type, s.Nodes[2].Wait = "", &graph.Wait{Until: obj{"$arg": "at"}}
	s.Nodes[3].Type, s.Nodes[3].Wait = "", &graph.Wait{Until: obj{"$output": "a.at"}}
	f, err := Build(s, "k", now)
	require.NoError(t, err)
	require.Equal(t, 10*time.Minute, f.Nodes[1].For)
	require.Equal(t, `"2026-11-23T18:30:00+01:00"`, f.Nodes[2].Until)
	require.JSONEq(t, `{"$output":"a.at"}`, f.Nodes[3].Until)
	for i := range f.Nodes {
		require.Equal(t, i == 0, f.Planned[i].Task != nil)
		require.Equal(t, i == 0, HasTask(&f.Nodes[i]))
		require.Equal(t, i == 0, TaskID(f, i) != "")
	}
	out := bson.RawValue{Type: bson.TypeString}
	out.Type, out.Value, _ = bson.MarshalValue(obj{"at": "2026-11-24T00:00:00.5Z"})
	for i, want := range map[int]time.Time{1: now.Add(10 * time.Minute), 2: now.Add(4*time.Hour + 30*time.Minute), 3: time.Date(2026, 11, 24, 0, 0, 0, 5e8, time.UTC)} {
		at, err := DueAt(&f.Nodes[i], now, func(string) bson.RawValue { return out })
		require.NoError(t, err)
		require.Equal(t, want, at)
	}
	_, err = DueAt(&f.Nodes[3], now, func(string) bson.RawValue { return bson.RawValue{} })
	require.ErrorContains(t, err, `wait.until is null; want a time such as "2026-01-31T09:00:00Z"`)
}

func TestWhatIsWrongWithAWaitIsNamed(t *testing.T) {
	ten := 10 * time.Minute
	for want, do := range map[string]func(d *graph.NodeSpec){
		"nodes[3].type (node d) is given, but no worker runs a node with wait": func(d *graph.NodeSpec) { d.Type, d.Wait = "t", &graph.Wait{For: ten} },
		"nodes[3].args (node d) is given, but no worker runs a node with wait\nnodes[3].options (node d) is given, but no worker runs a node with wait": func(d *graph.NodeSpec) {
			d.Args, d.Options, d.Wait = 1, model.Options{NeedManual: new(true)}, &graph.Wait{For: ten}
		},
		"nodes[3].wait (node d) has both for and until; want one of them":            func(d *graph.NodeSpec) { d.Wait = &graph.Wait{For: ten, Until: "2026-01-31T09:00:00Z"} },
		"nodes[3].wait.for (node d) is 0s; want 1ms to ten years, or until":          func(d *graph.NodeSpec) { d.Wait = &graph.Wait{} },
		"nodes[3].wait.for (node d) is -1s; want 1ms to ten years, or until":         func(d *graph.NodeSpec) { d.Wait = &graph.Wait{For: -time.Second} },
		"nodes[3].wait.for (node d) is 100000h0m0s; want 1ms to ten years, or until": func(d *graph.NodeSpec) { d.Wait = &graph.Wait{For: 100_000 * time.Hour} },
		`nodes[3].wait.until (node d) is "noon"; want a time such as "2026-01-31T09:00:00Z"`: func(d *graph.NodeSpec) {
			d.Wait = &graph.Wait{Until: "noon"}
		},
		`nodes[3].wait.until (node d) is null; want a time such as "2026-01-31T09:00:00Z"`: func(d *graph.NodeSpec) {
			d.Wait = &graph.Wait{Until: obj{"$arg": "none"}}
		},
		`nodes[3].wait.until (node d) is ["x",{"$output":"b"}]; want a time such as "2026-01-31T09:00:00Z", or a reference to one`: func(d *graph.NodeSpec) {
			d.Wait = &graph.Wait{Until: []any{"x", obj{"$output": "b"}}}
		},
		"nodes[3].wait.until.$output (node d) names node x, which does not exist": func(d *graph.NodeSpec) { d.Wait = &graph.Wait{Until: obj{"$output": "x.at"}} },
	} {
		s := diamond()
		s.Nodes[3].Type = ""
		do(&s.Nodes[3])
		f, err := Build(s, "k", now)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.Nil(t, f)
		require.Equal(t, strings.Split(want, "\n"), strings.Split(err.Error(), "\n"))
	}
}
