package plan

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Query is what to read.
type Query struct {
	Filter *query.Filter
	Sort   *query.Sort // nil: any order
	Hint   bson.RawValue
	Limit  int // how many documents the caller takes at most, 0: all. The plan may return more.
}

// Plan is the way chosen to read a collection for a query.
type Plan struct {
	access
	c        *storage.Collection
	q        Query
	blocking bool // the result must be sorted
}

// access is one way to reach documents: an index, the whole collection when
// there is none, or the union of others.
type access struct {
	index    *storage.Index
	bounds   [][]span // by field of the index
	prefixes []string // of the scans to merge
	skip     int      // fields in each prefix
	end      int      // the fields from here on have no bounds
	reverse  bool
	any      []access // union, for $or
	none     bool     // nothing can match
	point    bool     // {_id: value} and no more
	bound    int      // leading fields that are restricted
	sorted   bool
	score    int
}

// PointID returns the _id a filter asks for, when it asks for just one: such a
// document is found without a plan.
func PointID(f *query.Filter) (bson.RawValue, bool) {
	for _, n := range conjuncts(f.Root()) {
		if n.Op == query.OpEq && n.Path == "_id" && plain(n.Value) {
			return n.Value, true
		}
	}
	return bson.RawValue{}, false
}

// Choose makes the plan. It fails with BadValue when the hint names no index.
// c is frozen; nil stands for a collection that does not exist.
func Choose(c *storage.Collection, q Query) (*Plan, error) {
	p := &Plan{c: c, q: q}
	if c == nil {
		p.none = true
		return p, nil
	}
	conditions := conjuncts(q.Filter.Root())
	hinted, err := findHint(c, q.Hint)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(conditions, func(n *query.Node) bool { return n.Op == query.OpFalse }) {
		p.none = true
		return p, nil
	}
	best := choose(c.Indexes, hinted, conditions, q.Sort)
	if best == nil && hinted != nil {
		return nil, mongoerr.New(mongoerr.BadValue, "error processing query: planner returned error :: caused by :: "+
			"the hinted index %s is partial and does not hold all documents the query asks for", hinted.Spec.Name)
	}
	if hinted == nil && (best == nil || best.bound == 0) {
		if any := considerOr(c, conditions); any != nil {
			best = &access{any: any}
		}
	}
	if best != nil {
		p.access = *best
	}
	p.blocking = q.Sort != nil && !p.sorted
	return p, nil
}

// findHint returns the index a hint names.
func findHint(c *storage.Collection, hint bson.RawValue) (*storage.Index, error) {
	const prefix = "error processing query: planner returned error :: caused by :: "
	var found []*storage.Index
	switch {
	case hint.Type == 0 || hint.Type == bson.TypeEmbeddedDocument && len(hint.Value) <= 5:
		return nil, nil // MongoDB takes an empty hint for none
	case hint.Type == bson.TypeString:
		if x := c.Index(hint.StringValue()); x != nil {
			found = append(found, x)
		}
	case hint.Type == bson.TypeEmbeddedDocument:
		if _, ok := value.Lookup(hint.Value, "$natural"); ok {
			return nil, mongoerr.NotImplemented("$natural")
		}
		for _, x := range c.Indexes {
			if value.Equal(value.Document(x.Spec.Key), hint) {
				found = append(found, x)
			}
		}
	default:
		return nil, mongoerr.New(mongoerr.FailedToParse, "hint must be specified as a string or an object")
	}
	switch len(found) {
	case 0:
		return nil, mongoerr.New(mongoerr.BadValue, prefix+"hint provided does not correspond to an existing index")
	case 1:
		return found[0], nil
	}
	return nil, mongoerr.New(mongoerr.IndexNotFound, prefix+"Hint matched multiple indexes, must hint by index name. "+
		"Matched: %s and %s", found[0].Spec.Name, found[1].Spec.Name)
}

// choose returns the best use of an index, the hinted one if there is a hint;
// nil: none is of use.
func choose(all []*storage.Index, hinted *storage.Index, conditions []*query.Node, order *query.Sort) (best *access) {
	for _, x := range all {
		if hinted != nil && x != hinted {
			continue
		}
		if a := consider(x, conditions, order, hinted != nil); a != nil && (best == nil || a.score > best.score) {
			best = a
		}
	}
	return best
}

// consider works out what index x can do for the query; nil: nothing.
func consider(x *storage.Index, conditions []*query.Node, order *query.Sort, hinted bool) *access {
	spec := x.Spec
	if spec.Partial != nil && !implied(spec.Partial, conditions) {
		return nil
	}
	bounds, present := boundsOf(x, conditions)
	if spec.Sparse && !present && !hinted {
		return nil // it may lack documents; only who asks for it by name gets it
	}
	a := &access{index: x, bounds: bounds, prefixes: []string{""}}
	if slices.ContainsFunc(bounds, func(b []span) bool { return len(b) == 0 }) {
		return &access{none: true, sorted: true, bound: 1, score: 1000}
	}
	for a.bound < len(bounds) && !isAll(bounds[a.bound]) {
		a.bound++
		if !isPoints(bounds[a.bound-1]) {
			a.score += 5
			break
		}
		a.score += 10
	}
	if order != nil && a.orderBy(order.Fields) {
		a.sorted = true
		a.score += 4
	}
	if a.bound == 0 && !a.sorted && !hinted {
		return nil
	}
	single := !slices.ContainsFunc(bounds, func(b []span) bool { return !isPoint(b) })
	if spec.Unique && single {
		a.score += 100
	}
	a.point = spec.Name == "_id_" && len(conditions) == 1 && single
	for a.end = len(bounds); a.end > a.skip && isAll(bounds[a.end-1]); {
		a.end--
	}
	return a
}

// considerOr finds an index for each branch of an $or.
func considerOr(c *storage.Collection, conditions []*query.Node) []access {
	for _, n := range conditions {
		if n.Op != query.OpOr {
			continue
		}
		var list []access
		for _, branch := range n.Children {
			if best := choose(c.Indexes, nil, append(conjuncts(branch), conditions...), nil); best != nil {
				list = append(list, *best)
			}
		}
		if len(list) == len(n.Children) {
			return list
		}
	}
	return nil
}
