package plan

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// position is a place between the keys of a field: before or after all keys
// that start with prefix, which is a whole key or the byte of a class.
type position struct {
	prefix string
	after  bool
}

// bytes is the position as a string that compares with keys: every key before
// it is less, every key behind it is greater or equal.
func (p position) bytes(descending bool) string {
	prefix, after := p.prefix, p.after
	if descending {
		inverted := []byte(prefix)
		for i := range inverted {
			inverted[i] = ^inverted[i]
		}
		prefix, after = string(inverted), !after
	}
	switch {
	case !after:
		return prefix
	case len(prefix) == 1:
		return string([]byte{prefix[0] + 1}) // classes are spread out
	}
	return prefix + "\xff" // no key is longer than another it starts with
}

func comparePositions(a, b position) int { return strings.Compare(a.bytes(false), b.bytes(false)) }

// interval is the keys between two positions; point when they are one key.
type interval struct {
	lo, hi position
	point  bool
}

func keyOf(v bson.RawValue) string { return string(value.AppendKey(nil, v, false)) }

func pointOf(v bson.RawValue) interval {
	k := keyOf(v)
	return interval{position{k, false}, position{k, true}, true}
}

var (
	lowest  = position{string([]byte{byte(value.ClassMinKey)}), false}
	highest = position{string([]byte{byte(value.ClassMaxKey)}), true}
	all     = []interval{{lo: lowest, hi: highest}}

	// nulls is what a missing field or null may have as its key.
	nulls = []interval{pointOf(value.Undefined), pointOf(value.Null)}
)

// isAll reports whether the intervals hold every key.
func isAll(list []interval) bool {
	return len(list) == 1 && list[0].lo == lowest && list[0].hi == highest
}

// isPoints reports whether there are only single keys.
func isPoints(list []interval) bool {
	return !slices.ContainsFunc(list, func(i interval) bool { return !i.point })
}

// intervalsOf returns intervals of the field's keys that every document matching
// the condition n has a key in. present tells that such a document is in a
// sparse index, since it has the field.
func intervalsOf(n *query.Node) (list []interval, present bool) {
	switch n.Op {
	case query.OpEq:
		return equal(n.Value)
	case query.OpIn:
		if len(n.Regexes) > 0 {
			return all, false
		}
		present = true
		for _, v := range n.Values {
			sub, p := equal(v)
			list = append(list, sub...)
			present = present && p
		}
		return union(list), present
	case query.OpLt, query.OpLte, query.OpGt, query.OpGte:
		return ranged(n)
	case query.OpRegex:
		return []interval{
			classInterval(value.ClassString), classInterval(value.ClassRegex),
		}, true
	case query.OpExists, query.OpType, query.OpSize, query.OpMod:
		return all, true
	}
	return all, false
}

func classInterval(c value.Class) interval {
	b := string([]byte{byte(c)})
	return interval{lo: position{b, false}, hi: position{b, true}}
}

func equal(v bson.RawValue) ([]interval, bool) {
	switch v.Type {
	case bson.TypeNull:
		return nulls, false
	case bson.TypeUndefined:
		return all, false
	case bson.TypeArray:
		// The array is equal itself, or is an element of an array of arrays.
		first := value.Undefined
		if it := value.NewIter(v.Value); it.Next() {
			first = it.Value
		}
		return union([]interval{pointOf(v), pointOf(first)}), true
	}
	return []interval{pointOf(v)}, true
}

func ranged(n *query.Node) ([]interval, bool) {
	switch n.Value.Type {
	case bson.TypeNull:
		return nulls, false
	case bson.TypeUndefined, bson.TypeArray, bson.TypeMinKey, bson.TypeMaxKey:
		return all, false
	}
	i := classInterval(value.ClassOf(n.Value.Type))
	k := keyOf(n.Value)
	switch n.Op {
	case query.OpLt:
		i.hi = position{k, false}
	case query.OpLte:
		i.hi = position{k, true}
	case query.OpGt:
		i.lo = position{k, true}
	case query.OpGte:
		i.lo = position{k, false}
	}
	return []interval{i}, true
}

// union sorts intervals and merges those that overlap.
func union(list []interval) []interval {
	slices.SortFunc(list, func(a, b interval) int { return comparePositions(a.lo, b.lo) })
	out := list[:0:0]
	for _, i := range list {
		if n := len(out); n > 0 && comparePositions(i.lo, out[n-1].hi) < 0 {
			if comparePositions(i.hi, out[n-1].hi) > 0 {
				out[n-1].hi = i.hi
			}
			out[n-1].point = out[n-1].point && i.point
			continue
		}
		out = append(out, i)
	}
	return out
}

// intersect returns what lies in both sorted lists.
func intersect(a, b []interval) (out []interval) {
	for len(a) > 0 && len(b) > 0 {
		x, y := a[0], b[0]
		i := interval{lo: x.lo, hi: x.hi, point: x.point || y.point}
		if comparePositions(y.lo, i.lo) > 0 {
			i.lo = y.lo
		}
		if comparePositions(y.hi, i.hi) < 0 {
			i.hi = y.hi
		}
		if comparePositions(i.lo, i.hi) < 0 {
			out = append(out, i)
		}
		if comparePositions(x.hi, y.hi) < 0 {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// span is an interval in the order of the index, as bytes.
type span struct{ lo, hi string }

// spansOf turns intervals into spans of an ascending or descending field.
func spansOf(list []interval, descending bool) []span {
	out := make([]span, len(list))
	for i, iv := range list {
		if descending {
			out[len(list)-1-i] = span{iv.hi.bytes(true), iv.lo.bytes(true)}
		} else {
			out[i] = span{iv.lo.bytes(false), iv.hi.bytes(false)}
		}
	}
	return out
}
