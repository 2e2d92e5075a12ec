package plan

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Missing is how a distinct treats a document that lacks the field. MongoDB
// reads documents, where such a field has no value, or the keys of an index
// alone, where its key is null. Which of the two it does is visible in the answer.
type Missing uint8

// What a document that lacks the field adds to a distinct.
const (
	// MissingIsNothing: documents are read.
	MissingIsNothing Missing = iota
	// MissingIsNull: the keys of an index are read, and no document.
	MissingIsNull
	// MissingIsEither: this package does not know whether an index is enough.
	MissingIsEither
	// MissingHidesNull: of all documents with the key null one is read. It may lack
	// the field where another one has null.
	MissingHidesNull
)

// DistinctMissing decides how MongoDB answers a distinct of key. It returns the
// index to read if only documents in that index count, else nil.
//
// An index is enough when it holds the field itself (no array was on the path, no
// number in it) and its bounds say all of the filter. Without a filter MongoDB takes
// the shortest index that begins with the field, also a sparse one.
func DistinctMissing(c *storage.Collection, q Query, key string) (Missing, *storage.Index) {
	hinted, err := (*storage.Index)(nil), error(nil)
	if c != nil {
		hinted, err = findHint(c, q.Hint)
	}
	if c == nil || err != nil {
		return MissingIsNothing, nil
	}
	all := c.Indexes
	if hinted != nil {
		all = []*storage.Index{hinted}
	}
	conditions := conjuncts(q.Filter.Root())
	if len(conditions) == 0 {
		if x := shortest(all, key); x != nil {
			if plainField(x, key) < 0 {
				return MissingHidesNull, x
			}
			return MissingIsNull, x
		}
	}
	found := MissingIsNothing
	for _, x := range all {
		switch covers(x, key, conditions, hinted != nil) {
		case exact:
			return MissingIsNull, nil
		case unknown:
			found = MissingIsEither
		}
	}
	return found, nil
}

// shortest returns the index with the fewest fields that begins with key.
func shortest(all []*storage.Index, key string) (best *storage.Index) {
	for _, x := range all {
		if x.Spec.Partial == nil && x.Spec.Fields[0].Path == key &&
			(best == nil || len(x.Spec.Fields) < len(best.Spec.Fields)) {
			best = x
		}
	}
	return best
}

// plainField returns which field of x holds the values at key, -1 for none.
func plainField(x *storage.Index, key string) int {
	for i, f := range x.Spec.Fields {
		if f.Path == key && !x.Multikey(i) && !hasNumber(key) {
			return i
		}
	}
	return -1
}

// tightness is whether the bounds of an index express all of a condition.
type tightness uint8

const (
	inexact tightness = iota
	unknown
	exact
)

// covers tells whether x answers a distinct of key without its documents.
func covers(x *storage.Index, key string, conditions []*query.Node, hinted bool) tightness {
	if plainField(x, key) < 0 || x.Spec.Partial != nil && !implied(x.Spec.Partial, conditions) {
		return inexact
	}
	leading, arrays, least := len(conditions) == 0 && hinted, 0, exact
	for _, n := range conditions {
		path, negated := n.Path, n.Op == query.OpNot || n.Op == query.OpNor && len(n.Children) == 1
		if negated {
			path = n.Children[0].Path
		}
		i := slices.IndexFunc(x.Spec.Fields, func(f value.Field) bool { return f.Path == path })
		if i < 0 {
			return inexact
		}
		how := tight(n, negated)
		switch {
		case !x.Spec.Sparse:
		case n.Op == query.OpExists:
			how = unknown // a key may say that the field exists
		case negated:
			how = min(how, unknown) // the index may lack what matches
		}
		if x.Multikey(i) {
			if arrays++; arrays > 1 || negated {
				return inexact
			}
		}
		leading = leading || i == 0
		least = min(least, how)
	}
	if !leading {
		return inexact
	}
	return least
}

// tight returns how well bounds express n over a field without arrays.
func tight(n *query.Node, negated bool) tightness {
	if negated {
		return tightNot(n.Children[0])
	}
	switch n.Op {
	case query.OpEq:
		return tightValue(n.Value)
	case query.OpLt, query.OpLte, query.OpGt, query.OpGte:
		if n.Value.Type == bson.TypeMinKey || n.Value.Type == bson.TypeMaxKey {
			return unknown
		}
		return tightValue(n.Value)
	case query.OpIn:
		least := exact
		for _, v := range n.Values {
			least = min(least, tightValue(v))
		}
		if len(n.Regexes) > 0 {
			least = min(least, unknown)
		}
		return least
	case query.OpRegex:
		return unknown // exact for a mere prefix
	}
	return inexact
}

func tightNot(n *query.Node) tightness {
	switch n.Op {
	case query.OpEq, query.OpIn, query.OpLt, query.OpLte, query.OpGt, query.OpGte:
		if tight(n, false) == exact {
			return exact
		}
		return unknown // $ne: null has rules of its own
	}
	return inexact
}

// tightValue is of a comparison with v: null is also missing, an array also its
// elements.
func tightValue(v bson.RawValue) tightness {
	if plain(v) {
		return exact
	}
	return inexact
}
