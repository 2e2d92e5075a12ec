package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
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
				if pos != nil {
					*pos = -1
				}
				return false
			}
		}
		return true
	case OpOr:
		for _, c := range n.Children {
			if c.match(doc, nil) {
				return true
			}
		}
		return false
	case OpNor:
		for _, c := range n.Children {
			if c.match(doc, nil) {
				return false
			}
		}
		return true
	case OpNot:
		return !n.Children[0].match(doc, nil)
	case OpFalse:
		return false
	}
	return n.along(doc, n.parts, pos)
}

// along follows parts through documents to the value the condition is about,
// or to the first array.
func (n *Node) along(doc []byte, parts []part, pos *int) bool {
	for i := range parts {
		v, ok := value.Lookup(doc, parts[i].name)
		if !ok {
			return n.test(missing, pos)
		}
		last := i == len(parts)-1
		switch {
		case v.Type == bson.TypeArray && last:
			return n.array(v, pos)
		case v.Type == bson.TypeArray:
			return n.through(v.Value, parts[i+1:], pos)
		case last:
			return n.test(v, pos)
		case v.Type != bson.TypeEmbeddedDocument:
			return n.test(missing, pos)
		}
		doc = v.Value
	}
	return false
}

// array tests an array at the end of the path: its elements and itself.
func (n *Node) array(v bson.RawValue, pos *int) bool {
	switch n.Op {
	case OpSize, OpElemMatch, OpElemValue:
		return n.test(v, pos)
	}
	i := 0
	for it := value.NewIter(v.Value); it.Next(); i++ {
		if n.test(it.Value, pos) {
			record(pos, i)
			return true
		}
	}
	return n.test(v, pos)
}

// through follows parts into the elements of an array on the way: into each
// document, and into the element that a numeric part names. Elements of other
// kinds give nothing, not even a missing value.
func (n *Node) through(array []byte, parts []part, pos *int) bool {
	i := -1
	for it := value.NewIter(array); it.Next(); {
		i++
		if it.Value.Type == bson.TypeEmbeddedDocument && n.along(it.Value.Value, parts, pos) {
			record(pos, i)
			return true
		}
		if !parts[0].index || string(it.Key) != parts[0].name {
			continue
		}
		matched := false
		switch {
		case len(parts) == 1:
			matched = n.test(it.Value, pos)
		case it.Value.Type == bson.TypeEmbeddedDocument:
			matched = n.along(it.Value.Value, parts[1:], pos)
		case it.Value.Type == bson.TypeArray:
			matched = n.through(it.Value.Value, parts[1:], pos)
		}
		if matched {
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
		if v.Type == 0 {
			return n.hasNull()
		}
		if _, found := slices.BinarySearchFunc(n.Values, v, value.Compare); found {
			return true
		}
		fallthrough
	case OpRegex:
		return slices.ContainsFunc(n.Regexes, func(r Regex) bool { return r.match(v) })
	case OpExists:
		return v.Type != 0
	case OpType:
		return v.Type != 0 && n.types&typeBit(v.Type) != 0
	case OpMod:
		i, ok := value.AsInteger(v)
		return ok && i%n.divisor == n.remainder
	case OpSize:
		return v.Type == bson.TypeArray && arrayLen(v.Value) == n.length
	case OpElemMatch, OpElemValue:
		return n.elements(v, pos)
	case OpAnd:
		for _, c := range n.Children {
			if !c.test(v, nil) {
				return false
			}
		}
		return true
	case OpNot:
		return !n.Children[0].test(v, nil)
	}
	return false
}

func (n *Node) hasNull() bool {
	_, found := slices.BinarySearchFunc(n.Values, value.Null, value.Compare)
	return found
}

// elements is $elemMatch.
func (n *Node) elements(v bson.RawValue, pos *int) bool {
	if v.Type != bson.TypeArray {
		return false
	}
	i := 0
	for it := value.NewIter(v.Value); it.Next(); i++ {
		matched := true
		if n.Op == OpElemMatch {
			matched = value.IsObject(it.Value) && n.Children[0].match(it.Value.Value, nil)
		} else {
			for _, c := range n.Children {
				matched = matched && c.test(it.Value, nil)
			}
		}
		if matched {
			record(pos, i)
			return true
		}
	}
	return false
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
	if n.Op != OpEq && class == value.ClassNumber {
		if nan := isNaN(v); nan || isNaN(n.Value) {
			return equal && nan && isNaN(n.Value)
		}
	}
	c := value.Compare(v, n.Value)
	switch n.Op {
	case OpLt:
		return c < 0
	case OpGt:
		return c > 0
	case OpLte:
		return c <= 0
	case OpGte:
		return c >= 0
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

func arrayLen(array []byte) (n int64) {
	for it := value.NewIter(array); it.Next(); {
		n++
	}
	return n
}
