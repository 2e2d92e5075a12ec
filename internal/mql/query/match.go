package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// missing is what a path finds where there is nothing.
var missing = bson.RawValue{}

// match tests a document. pos, if not nil, receives the array index that made
// it match; only conditions of an $and report one.
func (n *Node) match(doc []byte, pos *int) bool {
	switch n.Op {
	case OpAnd:
		for _, c := range n.Children {
			if !c.match(doc, pos) {
				record(pos, -1)
				return false
			}
		}
		return true
	case OpOr, OpNor:
		for _, c := range n.Children {
			if c.match(doc, nil) {
				return n.Op == OpOr
			}
		}
		return n.Op == OpNor
	case OpNot:
		return !n.Children[0].match(doc, nil)
	case OpFalse:
		return false
	}
	return n.reach(value.Document(doc), n.parts, pos)
}

// reach follows parts from v to the values that the condition is about, and
// tests them until one passes.
func (n *Node) reach(v bson.RawValue, parts []string, pos *int) bool {
	for ; len(parts) > 0; parts = parts[1:] {
		switch v.Type {
		case bson.TypeEmbeddedDocument:
			v, _ = value.Lookup(v.Value, parts[0])
		case bson.TypeArray:
			return n.through(v.Value, parts, pos)
		default:
			return n.test(missing, pos)
		}
	}
	if v.Type == bson.TypeArray && n.Op > OpSize { // all but those that are about the array
		i := 0
		for it := value.NewIter(v.Value); it.Next(); i++ {
			if n.test(it.Value, pos) {
				record(pos, i)
				return true
			}
		}
	}
	return n.test(v, pos)
}

// through follows parts into the elements of an array on the way: into each
// document, and into the element that a part names by its index. Elements of
// other kinds give nothing, not even a missing value.
func (n *Node) through(array []byte, parts []string, pos *int) bool {
	i := 0
	for it := value.NewIter(array); it.Next(); i++ {
		if it.Value.Type == bson.TypeEmbeddedDocument && n.reach(it.Value, parts, pos) {
			record(pos, i)
			return true
		}
		if string(it.Key) != parts[0] {
			continue
		}
		if len(parts) == 1 && n.test(it.Value, pos) ||
			len(parts) > 1 && value.IsObject(it.Value) && n.reach(it.Value, parts[1:], pos) {
			return true
		}
	}
	return false
}

// record notes the index of the outermost array: it is called from the inside
// out.
func record(pos *int, i int) {
	if pos != nil {
		*pos = i
	}
}

// test tests one value, arrays as a whole.
func (n *Node) test(v bson.RawValue, pos *int) bool {
	switch n.Op {
	case OpEq, OpLt, OpLte, OpGt, OpGte:
		return n.compare(v)
	case OpIn:
		want := v
		if value.ClassOf(v.Type) == value.ClassUndefined { // as null finds it
			want = value.Null
		}
		_, found := slices.BinarySearchFunc(n.Values, want, value.Compare)
		return found || slices.ContainsFunc(n.Regexes, func(r Regex) bool { return r.match(v) })
	case OpElemMatch, OpElemValue:
		if v.Type != bson.TypeArray {
			return false
		}
		i := 0
		for it := value.NewIter(v.Value); it.Next(); i++ {
			if n.element(it.Value) {
				record(pos, i)
				return true
			}
		}
		return false
	case OpAnd:
		return n.testAll(v)
	case OpNot:
		return !n.Children[0].test(v, nil)
	}
	return n.is != nil && n.is(v)
}

func (n *Node) testAll(v bson.RawValue) bool {
	for _, c := range n.Children {
		if !c.test(v, nil) {
			return false
		}
	}
	return true
}

// element is $elemMatch of one element.
func (n *Node) element(v bson.RawValue) bool {
	if n.Op == OpElemMatch {
		return value.IsObject(v) && n.Children[0].match(v.Value, nil)
	}
	return n.testAll(v)
}

// compare is $eq, $lt, $lte, $gt, $gte. Values of other classes do not match,
// but for null, which takes in what is missing, and the two ends of the order.
func (n *Node) compare(v bson.RawValue) bool {
	class, own := value.ClassOf(v.Type), value.ClassOf(n.Value.Type)
	equal := n.Op == OpEq || n.Op == OpLte || n.Op == OpGte
	if class != own {
		switch own {
		case value.ClassNull:
			return equal && class == value.ClassUndefined
		case value.ClassMaxKey:
			return n.Op == OpLt || n.Op == OpLte
		case value.ClassMinKey:
			return n.Op == OpGt || n.Op == OpGte
		}
		return false
	}
	c := value.Compare(v, n.Value)
	if c != 0 && (isNaN(v) || isNaN(n.Value)) {
		return false // NaN is neither less nor greater
	}
	switch n.Op {
	case OpLt, OpLte:
		return c < 0 || equal && c == 0
	case OpGt, OpGte:
		return c > 0 || equal && c == 0
	}
	return c == 0
}

func isNaN(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeDouble:
		f := v.Double()
		return f != f
	case bson.TypeDecimal128:
		return v.Decimal128().IsNaN()
	}
	return false
}
