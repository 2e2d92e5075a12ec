package query

import (
	"cmp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Op is what a Node tests.
type Op uint8

// The nodes of a filter, in the order MongoDB sorts the conditions of an $and:
// the last condition that went through an array decides what the positional
// operator stands for.
const (
	OpAnd       Op = iota // all Children
	OpOr                  // at least one of Children
	OpElemMatch           // an array at Path has an element that matches; Children[0] has paths relative to the element
	OpElemValue           // an array at Path has an element that matches all Children, whose Path is empty
	OpSize                // Path is an array of a length
	OpEq                  // Path = Value
	OpLte                 // Path <= Value
	OpLt                  // Path < Value
	OpGt                  // Path > Value
	OpGte                 // Path >= Value
	OpRegex               // Path matches a regular expression
	OpMod                 // Path is a number with a remainder
	OpExists              // Path exists ($exists: false is OpNot of it)
	OpIn                  // Path is one of Values (sorted, distinct) or matches one of Regexes
	OpNot                 // not Children[0]; $ne is OpNot of OpEq, $nin is OpNot of OpIn
	OpNor                 // none of Children
	OpType                // Path has one of a set of types
	OpFalse               // nothing ($all: [], $in: [])
)

// Node is a node of a compiled filter, not to be changed. $all becomes
// conditions of the OpAnd it stands in; an $in of one value is an OpEq, an $or
// of one condition that condition, one of several values of a field an OpIn.
//
// Only what lies below OpAnd and OpOr alone (not below OpNor, OpNot,
// OpElemMatch, OpElemValue) says of the whole document what it tests.
type Node struct {
	Op       Op
	Path     string          // dotted; empty for OpAnd, OpOr, OpNor, OpNot
	Value    bson.RawValue   // of comparisons
	Values   []bson.RawValue // of OpIn
	Regexes  []Regex         // of OpIn
	Children []*Node

	parts []string                   // Path, cut
	is    func(v bson.RawValue) bool // of OpSize, OpRegex, OpMod, OpExists, OpType: tests a value, zero for missing
}

func leaf(op Op, path string, v bson.RawValue) *Node {
	return &Node{Op: op, Path: path, parts: strings.Split(path, "."), Value: v}
}

func test(op Op, path string, is func(v bson.RawValue) bool) []*Node {
	n := leaf(op, path, missing)
	n.is = is
	return []*Node{n}
}

// Filter is a compiled filter.
type Filter struct {
	root *Node
}

// CompileFilter checks and compiles a filter. It keeps parts of filter, which
// must not change afterwards. A nil or empty filter matches everything.
func CompileFilter(filter bson.Raw) (f *Filter, err error) {
	defer catch(&err)
	return compileFilter(filter), nil
}

func compileFilter(filter []byte) *Filter {
	root := simplify(parseAnd(filter))
	if root.Op != OpAnd {
		root = &Node{Op: OpAnd, Children: []*Node{root}}
	}
	return &Filter{root}
}

// Root is the filter's tree, with an OpAnd at the top.
func (f *Filter) Root() *Node { return f.root }

// Match reports whether doc matches.
func (f *Filter) Match(doc bson.Raw) bool { return f.root.match(doc, nil) }

// MatchPositional is Match, and the array index that the positional operator
// `$` stands for: -1 if the filter went through no array.
func (f *Filter) MatchPositional(doc bson.Raw) (matched bool, pos int) {
	pos = -1
	matched = f.root.match(doc, &pos)
	return matched, pos
}

// simplify brings a tree to the shape Node promises: no $and within an $and,
// none and no $or of a single condition, the conditions of an $and in order.
func simplify(n *Node) *Node {
	for i, c := range n.Children {
		n.Children[i] = simplify(c)
	}
	if n.Op == OpAnd {
		var flat []*Node
		for _, c := range n.Children {
			if c.Op == OpAnd {
				flat = append(flat, c.Children...)
			} else {
				flat = append(flat, c)
			}
		}
		slices.SortStableFunc(flat, func(a, b *Node) int {
			return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Path, b.Path))
		})
		n.Children = flat
	}
	if n.Op <= OpOr && len(n.Children) == 1 {
		return n.Children[0]
	}
	if n.Op == OpOr {
		in := leaf(OpIn, n.Children[0].Path, missing)
		for _, c := range n.Children {
			if c.Op != OpEq || c.Path != in.Path || c.Value.Type == bson.TypeRegex {
				return n
			}
			in.Values = append(in.Values, c.Value)
		}
		if in.Values = distinct(in.Values); len(in.Values) == 1 {
			return leaf(OpEq, in.Path, in.Values[0])
		}
		return in
	}
	return n
}

// distinct brings values into the order of OpIn.
func distinct(values []bson.RawValue) []bson.RawValue {
	slices.SortStableFunc(values, value.Compare)
	return slices.CompactFunc(values, value.Equal)
}
