package plan

import (
	"bytes"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// maxBranches is how many scans are merged for a sort order at most, as in
// MongoDB; beyond, the result is sorted.
const maxBranches = 200

// Query is what to read.
type Query struct {
	Filter *query.Filter
	Sort   *query.Sort // nil: any order
	Hint   bson.RawValue
	Limit  int // how many documents the caller takes at most, 0: all. The plan may return more.
}

// Plan is the way chosen to read a collection for a query.
type Plan struct {
	c        *storage.Collection
	q        Query
	access   access
	blocking bool // the result must be sorted
}

// access is one way to reach documents.
type access struct {
	index    *storage.Index // nil: the whole collection, or the union of any
	fields   []fieldSpans
	bounds   [][]interval // by field of the index, for explain
	prefixes []string     // of the scans to merge; nil: one scan, no prefix
	skip     int          // fields in each prefix
	reverse  bool
	any      []access // union, for $or
	none     bool     // nothing can match
	point    bool     // {_id: value} and no more
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
		p.access.none = true
		return p, nil
	}
	conditions := conjuncts(q.Filter.Root())
	hinted, err := findHint(c, q.Hint)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(conditions, func(n *query.Node) bool { return n.Op == query.OpFalse }) {
		p.access.none = true
		return p, nil
	}
	var best *candidate
	for _, x := range c.Indexes {
		if hinted != nil && x != hinted {
			continue
		}
		k := p.consider(x, conditions, hinted != nil)
		if k != nil && (best == nil || k.score > best.score) {
			best = k
		}
	}
	if hinted != nil && best == nil {
		return nil, mongoerr.New(mongoerr.BadValue, "error processing query: planner returned error :: caused by :: the hinted index %s is partial and does not hold all documents the query asks for", hinted.Spec.Name)
	}
	if best == nil || best.bound == 0 {
		if any := p.considerOr(conditions); any != nil && hinted == nil {
			best = &candidate{access: access{any: any}}
		}
	}
	if best == nil {
		p.blocking = q.Sort != nil
		return p, nil
	}
	p.access = best.access
	p.blocking = q.Sort != nil && !best.sorted
	return p, nil
}

// findHint returns the index a hint names.
func findHint(c *storage.Collection, hint bson.RawValue) (x *storage.Index, err error) {
	switch {
	case hint.Type == 0 || hint.Type == bson.TypeEmbeddedDocument && len(hint.Value) <= 5: // MongoDB takes an empty hint for none
		return nil, nil
	case hint.Type == bson.TypeString:
		x = c.Index(hint.StringValue())
	case hint.Type == bson.TypeEmbeddedDocument:
		if _, ok := value.Lookup(hint.Value, "$natural"); ok {
			return nil, mongoerr.NotImplemented("$natural")
		}
		for _, candidate := range c.Indexes {
			if !sameKey(candidate.Spec, hint.Value) {
				continue
			}
			if x != nil {
				return nil, mongoerr.New(mongoerr.IndexNotFound, "error processing query: planner returned error :: caused by :: Hint matched multiple indexes, must hint by index name. Matched: %s and %s", x.Spec.Name, candidate.Spec.Name)
			}
			x = candidate
		}
	default:
		return nil, mongoerr.New(mongoerr.FailedToParse, "hint must be specified as a string or an object")
	}
	if x == nil {
		err = mongoerr.New(mongoerr.BadValue, "error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index")
	}
	return x, err
}

func sameKey(s *storage.IndexSpec, key bson.Raw) bool {
	a, b := value.NewIter(s.Key), value.NewIter(key)
	for {
		moreA, moreB := a.Next(), b.Next()
		if !moreA || !moreB {
			return moreA == moreB
		}
		if !bytes.Equal(a.Key, b.Key) || !value.Equal(a.Value, b.Value) {
			return false
		}
	}
}

// candidate is an access that was considered.
type candidate struct {
	access
	bound  int // leading fields that are restricted
	sorted bool
	score  int
}

// consider works out what index x can do for the query; nil: nothing.
func (p *Plan) consider(x *storage.Index, conditions []*query.Node, hinted bool) *candidate {
	spec := x.Spec
	if spec.Partial != nil && !implied(spec.Partial, conditions) {
		return nil
	}
	bounds, present := boundsOf(x, conditions)
	if spec.Sparse && !present && !hinted {
		return nil // it may lack documents; only who asks for it by name gets it
	}
	k := &candidate{access: access{index: x, bounds: bounds}}
	for _, b := range bounds {
		if len(b) == 0 {
			k.none = true
			k.sorted = true
			k.bound, k.score = 1, 1000
			return k
		}
	}
	for k.bound < len(bounds) && !isAll(bounds[k.bound]) {
		k.score += 10
		if !isPoints(bounds[k.bound]) {
			k.score -= 5
			k.bound++
			break
		}
		k.bound++
	}
	if p.q.Sort != nil {
		k.sorted = k.orderBy(x, p.q.Sort.Fields)
	}
	if k.sorted {
		k.score += 4
	}
	if k.bound == 0 && !k.sorted && !hinted {
		return nil
	}
	if spec.Unique && k.bound == len(spec.Fields) && singles(bounds) {
		k.score += 100
	}
	k.point = spec.Name == "_id_" && len(conditions) == 1 && singles(bounds)
	k.restrict(x)
	return k
}

// considerOr finds an index for each branch of an $or.
func (p *Plan) considerOr(conditions []*query.Node) []access {
	for _, n := range conditions {
		if n.Op != query.OpOr {
			continue
		}
		var list []access
		for _, branch := range n.Children {
			sub := &Plan{c: p.c}
			narrowed := append(conjuncts(branch), conditions...)
			var best *candidate
			for _, x := range p.c.Indexes {
				if k := sub.consider(x, narrowed, false); k != nil && (best == nil || k.score > best.score) {
					best = k
				}
			}
			if best == nil {
				list = nil
				break
			}
			list = append(list, best.access)
		}
		if list != nil {
			return list
		}
	}
	return nil
}
