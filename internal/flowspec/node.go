package flowspec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/model"
)

// ofNode makes errors about fields of node i say so: their fields, and the node's id.
func ofNode(i int, id string, err error) (out []error) {
	var f *model.InvalidError
	switch joined, many := err.(interface{ Unwrap() []error }); {
	case err == nil:
		return nil
	case many:
		for _, e := range joined.Unwrap() {
			out = append(out, ofNode(i, id, e)...)
		}
		return out
	case !errors.As(err, &f):
		return []error{fmt.Errorf("nodes[%d]: %w", i, err)}
	}
	shown := ""
	if id != "" {
		shown = "(node " + shownID(id) + ") "
	}
	return []error{input.Invalid(fmt.Sprintf("nodes[%d].%s", i, f.Field), "%s%s", shown, f.Reason)}
}

// checker gathers what is wrong with one node.
type checker struct {
	*builder
	i int // its place as it was given
	n *graph.NodeSpec
}

func (c *checker) add(err error) {
	c.errs = append(c.errs, ofNode(c.i, c.n.ID, err)...)
}

func (c *checker) bad(field, format string, args ...any) {
	c.add(input.Invalid(field, format, args...))
}

// node checks node i, fills in its place in the document, and returns the arguments of its task.
func (b *builder) node(f *graph.Flow, i int) bson.RawValue {
	n := &b.spec.Nodes[i]
	c := &checker{b, i, n}
	c.plain()

	place := b.shape.rank[i]
	v := graph.Vertex{
		ID: n.ID, Type: n.Type, After: b.ranks(b.shape.parents[i]), When: c.when(),
		Join: cmp.Or(n.Join.Strategy, graph.AllSucceeded), OnFailure: cmp.Or(n.OnFailure, graph.Suspend),
	}
	c.kind(&v)
	v.Context = c.join(&v)
	state := graph.State{Status: graph.NodeWait, Context: v.Context, At: b.now}
	if len(n.After) == 0 {
		state.Status = graph.NodeReady
	}
	args, waits := c.args()
	if waits || (n.Flow != nil || n.Each != nil) && args.Type != 0 { // the task has none until the outputs are there
		v.Args, args = string(codec.ValueJSON(args)), bson.RawValue{}
	}
	f.Nodes[place], f.States[place] = v, state
	return args
}

// ranks are the places of nodes in the document.
func (b *builder) ranks(nodes []int) (out []int) {
	for _, i := range nodes {
		out = append(out, b.shape.rank[i])
	}
	return out
}

// join checks the join, fills it in, and returns what its function is given first.
func (c *checker) join(v *graph.Vertex) (context bson.RawValue) {
	j := &c.n.Join
	if len(c.n.After) == 0 {
		// Seed 002 lets the first node name all_ended, which always holds there.
		if j.Strategy != "" && j.Strategy != graph.AllEnded || j.N != 0 || len(j.Nodes) > 0 || j.Custom != "" || j.Context != nil {
			c.bad("join", "is given, but the node has no parents")
		}
		return context
	}
	if !oneOf(c, "join.strategy", j.Strategy, "", graph.AllSucceeded, graph.AllEnded, graph.AtLeast, graph.These, graph.Custom) {
		return context
	}
	for _, p := range []struct {
		field string
		given bool
		of    graph.Strategy
	}{
		{"n", j.N != 0, graph.AtLeast}, {"nodes", len(j.Nodes) > 0, graph.These},
		{"custom", j.Custom != "", graph.Custom}, {"context", j.Context != nil, graph.Custom},
	} {
		if p.given && v.Join != p.of {
			c.bad("join."+p.field, "is given, but the strategy is %s; it belongs to %s", v.Join, p.of)
		}
	}
	switch v.Join {
	case graph.AtLeast:
		if v.N = j.N; j.N < 1 || j.N > len(c.n.After) {
			c.bad("join.n", "is %d; want 1 to %d, the number of its parents", j.N, len(c.n.After))
		}
	case graph.These:
		c.these(v)
	case graph.Custom:
		v.Custom = j.Custom
		c.add(input.Name("join.custom", j.Custom))
		var err error
		context, err = codec.EncodeValue("join.context", j.Context, maxValueBytes)
		c.add(err)
	}
	return context
}

// these are the parents that a join names.
func (c *checker) these(v *graph.Vertex) {
	names := c.n.Join.Nodes
	if len(names) == 0 {
		c.bad("join.nodes", "are missing; name the parents that must succeed")
	}
	seen := make(map[string]bool, len(names))
	for k, id := range names {
		field := fmt.Sprintf("join.nodes[%d]", k)
		switch {
		case seen[id]:
			c.bad(field, "is %s, which is named before", shownID(id))
		case !slices.Contains(c.n.After, id):
			c.bad(field, "is %s, which is no parent of the node", shownID(id))
		default:
			if i, known := c.shape.places[id]; known {
				v.These = append(v.These, c.shape.rank[i])
			}
		}
		seen[id] = true
	}
}

// when are the conditions of the parents, in their order; nil = there are none.
func (c *checker) when() (out []string) {
	if len(c.n.When) > 0 {
		out = make([]string, len(c.shape.parents[c.i]))
	}
	for _, id := range slices.Sorted(maps.Keys(c.n.When)) {
		field := "when." + shownID(id)
		if !slices.Contains(c.n.After, id) {
			c.bad(field, "is a condition on no parent of the node")
		}
		filter, err := condition(field, c.n.When[id])
		c.add(err)
		i, known := c.shape.places[id]
		if k := slices.Index(c.shape.parents[c.i], i); known && k >= 0 {
			out[k] = string(codec.ValueJSON(filter))
		}
	}
	return out
}

// condition compiles a condition.
func condition(field string, when any) (v bson.RawValue, err error) {
	v, err = codec.EncodeTemplate(field, when, maxValueBytes)
	if err != nil {
		return v, err
	}
	if v.Type != bson.TypeEmbeddedDocument {
		return bson.RawValue{}, input.Invalid(field, `is no filter; want one on output, such as {"output.amount": {"$gt": 100}}`)
	}
	if _, err := query.CompileFilter(v.Value); err != nil {
		return bson.RawValue{}, input.Invalid(field, "is no filter: %v", err)
	}
	return v, onOutput(field, v.Value)
}

// onOutput refuses a filter that asks for other fields than output, which are never there.
func onOutput(field string, filter bson.Raw) error {
	fields, _ := filter.Elements() // it has been compiled
	for _, e := range fields {
		name := e.Key()
		if root, _, _ := strings.Cut(name, "."); root != "output" && !strings.HasPrefix(name, "$") {
			return input.Invalid(field, "asks for %q; want output or what is in it, such as output.%s", name, name)
		}
		if parts, list := e.Value().ArrayOK(); list && strings.HasPrefix(name, "$") { // $and, $or, $nor
			filters, _ := parts.Values()
			for _, f := range filters {
				if inner, ok := f.DocumentOK(); ok {
					if err := onOutput(field, inner); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// oneOf checks a word.
func oneOf[T ~string](c *checker, field string, v T, allowed ...T) bool {
	if slices.Contains(allowed, v) {
		return true
	}
	c.bad(field, "is %q; want one of %s", v, input.Names(allowed[1:]))
	return false
}
