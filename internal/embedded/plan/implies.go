package plan

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// conjuncts returns the conditions all of which a matching document meets.
func conjuncts(n *query.Node) (list []*query.Node) {
	if n == nil {
		return nil
	}
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
	switch want.Op {
	case query.OpExists:
		_, present := intervalsOf(have)
		return present
	case query.OpEq:
		return eachValue(have, func(v bson.RawValue) bool { return plain(v) && value.Equal(v, want.Value) })
	case query.OpLt, query.OpLte, query.OpGt, query.OpGte:
		if have.Op == want.Op || have.Op == strict(want.Op) {
			return within(have.Value, want.Value, loose(want.Op))
		}
		if have.Op == loose(want.Op) {
			return within(have.Value, want.Value, want.Op)
		}
		return eachValue(have, func(v bson.RawValue) bool { return within(v, want.Value, want.Op) })
	}
	return false
}

func strict(op query.Op) query.Op {
	switch op {
	case query.OpLte:
		return query.OpLt
	case query.OpGte:
		return query.OpGt
	}
	return op
}

func loose(op query.Op) query.Op {
	switch op {
	case query.OpLt:
		return query.OpLte
	case query.OpGt:
		return query.OpGte
	}
	return op
}

// eachValue reports whether n is an equality with values that all pass test.
func eachValue(n *query.Node, test func(bson.RawValue) bool) bool {
	switch n.Op {
	case query.OpEq:
		return test(n.Value)
	case query.OpIn:
		return len(n.Regexes) == 0 && len(n.Values) > 0 &&
			!slices.ContainsFunc(n.Values, func(v bson.RawValue) bool { return !test(v) })
	}
	return false
}

// plain reports whether equality with v means just that: null also equals a
// missing field, an array its elements.
func plain(v bson.RawValue) bool {
	return v.Type != bson.TypeNull && v.Type != bson.TypeUndefined && v.Type != bson.TypeArray
}

// within reports whether v lies on op's side of bound, in bound's class.
func within(v, bound bson.RawValue, op query.Op) bool {
	if !plain(v) || !plain(bound) || value.ClassOf(v.Type) != value.ClassOf(bound.Type) || isNaN(v) || isNaN(bound) {
		return false
	}
	c := value.Compare(v, bound)
	switch op {
	case query.OpLt:
		return c < 0
	case query.OpLte:
		return c <= 0
	case query.OpGt:
		return c > 0
	}
	return c >= 0
}

func isNaN(v bson.RawValue) bool {
	return value.ClassOf(v.Type) == value.ClassNumber && value.AsDouble(v) != value.AsDouble(v)
}
