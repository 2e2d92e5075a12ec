package flowspec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

func TestWhatIsWrongWithAnAskIsNamed(t *testing.T) {
	for want, a := range map[string]*graph.Ask{
		"nodes[3].ask.title (node d) is empty; want up to 4096 bytes":                                      {},
		"nodes[3].ask.title (node d) has 4097 bytes; at most 4096 are allowed":                             {Title: strings.Repeat("x", 4097)},
		"nodes[3].ask.fields (node d) are 33; at most 32 are allowed":                                      {Title: "x", Fields: make([]graph.Field, 33)},
		`nodes[3].ask.fields[0].name (node d) is "a.b"; want 1 to 64 of a-z A-Z 0-9 _ -`:                   {Title: "x", Fields: []graph.Field{{Name: "a.b"}}},
		"nodes[3].ask.fields[1].name (node d) is that of ask.fields[0], too":                               {Title: "x", Fields: []graph.Field{{Name: "a"}, {Name: "a"}}},
		`nodes[3].ask.fields[0].kind (node d) is "date"; want one of string, number, bool, choice`:         {Title: "x", Fields: []graph.Field{{Name: "a", Kind: "date"}}},
		"nodes[3].ask.fields[0].choices (node d) are missing; name what a person may choose":               {Title: "x", Fields: []graph.Field{{Name: "a", Kind: "choice"}}},
		"nodes[3].ask.fields[0].choices (node d) are given, but the kind is string; they belong to choice": {Title: "x", Fields: []graph.Field{{Name: "a", Choices: []string{"b"}}}},
		"nodes[3].ask.fields[0].choices[1] (node d) is empty; want up to 200 bytes":                        {Title: "x", Fields: []graph.Field{{Name: "a", Kind: "choice", Choices: []string{"b", ""}}}},
		"nodes[3].ask.fields[0].help (node d) has 1025 bytes; at most 1024 are allowed":                    {Title: "x", Fields: []graph.Field{{Name: "a", Help: strings.Repeat("x", 1025)}}},
	} {
		s := diamond()
		s.Nodes[3].Type, s.Nodes[3].Ask = "", a
		f, err := Build(s, "k", now)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.Nil(t, f)
		require.EqualError(t, err, want)
	}
	s := diamond()
	s.Nodes[3].Ask = &graph.Ask{Title: "x"}
	_, err := Build(s, "k", now)
	require.EqualError(t, err, "nodes[3].type (node d) is given, but no worker runs a node with ask")
	s.Nodes[3].Type, s.Nodes[3].Wait = "", &graph.Wait{For: 1e9}
	_, err = Build(s, "k", now)
	require.EqualError(t, err, "nodes[3].ask (node d) is given, but the node has wait; want one of them")
}

// A document that leaves no room for the answers is refused when the flow is sent.
func TestAFlowHasRoomForWhatPeopleAnswer(t *testing.T) {
	s := &graph.Spec{Key: "k", Nodes: []graph.NodeSpec{{ID: "a", Type: "t"}}}
	for i := range 900 {
		s.Nodes = append(s.Nodes, graph.NodeSpec{ID: "n" + strings.Repeat("x", i%50) + string(rune('a'+i/50)), After: []string{s.Nodes[i].ID}, Ask: &graph.Ask{Title: "x"}})
	}
	_, err := Build(s, "k", now)
	require.ErrorContains(t, err, "nodes are too large")
	s.Nodes = s.Nodes[:700]
	_, err = Build(s, "k", now)
	require.NoError(t, err)
}

func TestAnswersAreCheckedFieldByField(t *testing.T) {
	a := &graph.Ask{Title: "x", Fields: []graph.Field{
		{Name: "b", Kind: "bool"}, {Name: "n", Kind: "number", Required: true, Help: "in euros"}, {Name: "c", Kind: "choice", Choices: []string{"x", "y"}}, {Name: "s", Kind: "string"},
	}}
	out, err := Answers(a, obj{"s": "text", "n": 1.5, "b": false, "c": nil})
	require.NoError(t, err)
	require.JSONEq(t, `{"b":false,"n":1.5,"s":"text"}`, jsonOf(out))
	out, err = Answers(a, struct {
		N int `json:"n"`
	}{7})
	require.NoError(t, err)
	require.Equal(t, `{"n":7}`, jsonOf(out))
	for want, values := range map[string]any{
		"values.n is missing; it is required: in euros":                          nil,
		`values are "x"; want an object of fields and values`:                    "x",
		"values.b is 1; want true or false\nvalues.n is true; want a number":     obj{"b": 1, "n": true},
		`values.c is "z"; want one of x, y` + "\nvalues.s is [\"x\"]; want text": obj{"n": 1, "c": "z", "s": []string{"x"}},
		"values.other is not asked for; the node asks for b, n, c, s":            obj{"n": 1, "other": 1},
		"values has 20013 bytes as BSON; at most 16384 are allowed":              obj{"s": strings.Repeat("x", 20_000)},
	} {
		_, err := Answers(a, values)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.EqualError(t, err, want)
	}
	out, err = Answers(&graph.Ask{Title: "x"}, nil)
	require.NoError(t, err)
	require.Equal(t, `{}`, jsonOf(out))
}
