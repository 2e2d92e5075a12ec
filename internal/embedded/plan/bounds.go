package plan

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// span is a range of keys of one field in the order of the index: from lo to
// before hi. A point is a single key, which is lo. In a list, spans are sorted
// and do not overlap.
type span struct {
	lo, hi string
	point  bool
}

// everything holds every key: no key begins with this byte.
var everything = []span{{hi: last}}

const last = "\xff"

// after is the place behind a key and all keys of further fields behind it.
func after(key string) string { return key + last }

func keyOf(v bson.RawValue, descending bool) string {
	return string(value.AppendKey(nil, v, descending))
}

func pointOf(v bson.RawValue, descending bool) span {
	k := keyOf(v, descending)
	return span{k, after(k), true}
}

func classSpan(c value.Class, descending bool) span {
	b := byte(c)
	if descending {
		b = ^b
	}
	return span{lo: string([]byte{b}), hi: string([]byte{b + 1})} // classes are spread out
}

func isAll(list []span) bool { return len(list) == 1 && list[0] == everything[0] }

func isPoints(list []span) bool {
	return !slices.ContainsFunc(list, func(s span) bool { return !s.point })
}

func isPoint(list []span) bool { return len(list) == 1 && list[0].point }

// spansOf returns spans of the field's keys that every document matching the
// condition n has a key in. present tells that such a document is in a sparse
// index, since it has the field.
func spansOf(n *query.Node, descending bool) (list []span, present bool) {
	switch n.Op {
	case query.OpEq:
		return equal(descending, n.Value)
	case query.OpIn:
		if len(n.Regexes) > 0 {
			return everything, false
		}
		return equal(descending, n.Values...)
	case query.OpLt, query.OpLte, query.OpGt, query.OpGte:
		return ranged(n, descending)
	case query.OpRegex:
		return union(classSpan(value.ClassString, descending), classSpan(value.ClassRegex, descending)), true
	}
	return everything, n.Op == query.OpExists || n.Op == query.OpType || n.Op == query.OpSize || n.Op == query.OpMod
}

// equal returns the points where what is equal to one of vs may be.
func equal(descending bool, vs ...bson.RawValue) (list []span, present bool) {
	present = true
	for _, v := range vs {
		list = append(list, pointOf(v, descending))
		switch v.Type {
		case bson.TypeNull: // or missing
			list = append(list, pointOf(value.Undefined, descending))
			present = false
		case bson.TypeArray: // equal itself, or an element of an array of arrays
			first := value.Undefined
			if it := value.NewIter(v.Value); it.Next() {
				first = it.Value
			}
			list = append(list, pointOf(first, descending))
		}
	}
	return union(list...), present
}

var nan = value.Double(math.NaN())

func isNaN(v bson.RawValue) bool { return value.Equal(v, nan) }

// ranged returns the span of $lt, $lte, $gt or $gte, within the class of its value.
func ranged(n *query.Node, descending bool) (list []span, present bool) {
	switch n.Value.Type {
	case bson.TypeNull:
		return equal(descending, n.Value)
	case bson.TypeArray, bson.TypeMinKey, bson.TypeMaxKey:
		return everything, false
	}
	s := classSpan(value.ClassOf(n.Value.Type), descending)
	below := n.Op == query.OpLt || n.Op == query.OpLte
	inclusive := n.Op == query.OpLte || n.Op == query.OpGte
	if below && value.ClassOf(n.Value.Type) == value.ClassNumber && !isNaN(n.Value) {
		// The least number is NaN, which is not less than others.
		if p := pointOf(nan, descending); descending {
			s.hi = p.lo
		} else {
			s.lo = p.hi
		}
	}
	at := keyOf(n.Value, descending)
	upper := below != descending
	if upper == inclusive {
		at = after(at)
	}
	if upper {
		s.hi = at
	} else {
		s.lo = at
	}
	return []span{s}, true
}

// union sorts spans and merges those that overlap.
func union(list ...span) (out []span) {
	slices.SortFunc(list, func(a, b span) int { return strings.Compare(a.lo, b.lo) })
	for _, s := range list {
		if n := len(out); n > 0 && s.lo < out[n-1].hi {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			out[n-1].point = out[n-1].point && s.point
			continue
		}
		out = append(out, s)
	}
	return out
}

// intersect returns what lies in both lists.
func intersect(a, b []span) (out []span) {
	for len(a) > 0 && len(b) > 0 {
		x, y := a[0], b[0]
		s := span{max(x.lo, y.lo), min(x.hi, y.hi), x.point || y.point}
		if s.lo < s.hi {
			out = append(out, s)
		}
		if x.hi < y.hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// conjuncts returns the conditions all of which a matching document meets.
func conjuncts(n *query.Node) (list []*query.Node) {
	if n.Op != query.OpAnd {
		return []*query.Node{n}
	}
	for _, c := range n.Children {
		list = append(list, conjuncts(c)...)
	}
	return list
}

// implied reports whether every document that meets the conditions matches the
// filter of a partial index, as far as one can easily tell.
func implied(partial *query.Filter, conditions []*query.Node) bool {
	for _, want := range conjuncts(partial.Root()) {
		if !slices.ContainsFunc(conditions, func(have *query.Node) bool { return implies(have, want) }) {
			return false
		}
	}
	return true
}

func implies(have, want *query.Node) bool {
	if have.Path != want.Path {
		return false
	}
	inner, present := spansOf(have, false)
	switch want.Op {
	case query.OpExists:
		return present
	case query.OpEq, query.OpLt, query.OpLte, query.OpGt, query.OpGte:
		// Of such conditions the spans say all, but for some values.
		outer, _ := spansOf(want, false)
		return plain(want.Value) && !isNaN(want.Value) && !isAll(outer) && slices.Equal(intersect(inner, outer), inner)
	}
	return false
}

// plain reports whether equality with v means just that: null also equals a
// missing field, an array its elements.
func plain(v bson.RawValue) bool {
	return v.Type != bson.TypeNull && v.Type != bson.TypeUndefined && v.Type != bson.TypeArray
}

// boundsOf returns the spans of each field of x. Conditions on a field that
// may hold an array are not combined, since each may be met by another element;
// nor are those on two fields within the same array.
func boundsOf(x *storage.Index, conditions []*query.Node) (bounds [][]span, present bool) {
	restricted := false // a field with arrays is
	for i, f := range x.Spec.Fields {
		list := everything
		multikey := x.Multikey(i)
		for _, n := range conditions {
			if n.Path != f.Path {
				continue
			}
			sub, here := spansOf(n, f.Descending)
			present = present || here
			switch {
			case isAll(sub), multikey && (restricted || hasNumber(f.Path)):
			case x.Spec.Sparse && !here:
				// A sparse index has no key for an element without the field, though
				// the document is in it for another element's sake.
			case !multikey:
				list = intersect(list, sub)
			case isAll(list) || isPoints(sub) && (!isPoints(list) || len(sub) < len(list)):
				list = sub
			}
		}
		restricted = restricted || multikey && !isAll(list)
		bounds = append(bounds, list)
	}
	return bounds, present
}

// hasNumber reports whether a component of path may be an array's index.
func hasNumber(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "."), func(part string) bool {
		return part != "" && part[0] >= '0' && part[0] <= '9'
	})
}
