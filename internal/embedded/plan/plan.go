package plan

import (
	"bytes"
	"slices"
	"strings"

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
	hinted, scan, err := findHint(c, q.Hint)
	if err != nil {
		return nil, err
	}
	natural := q.Sort != nil && q.Sort.Natural != 0
	switch {
	case natural || scan != 0:
		direction := scan
		if natural {
			direction = q.Sort.Natural
		}
		p.access.reverse = direction < 0
		p.blocking = q.Sort != nil && !natural
		return p, nil
	case slices.ContainsFunc(conditions, func(n *query.Node) bool { return n.Op == query.OpFalse }):
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

// findHint returns the index a hint names, or the direction of $natural.
func findHint(c *storage.Collection, hint bson.RawValue) (x *storage.Index, natural int, err error) {
	missing := mongoerr.New(mongoerr.BadValue, "error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index")
	switch hint.Type {
	case 0:
		return nil, 0, nil
	case bson.TypeString:
		if x := c.Index(hint.StringValue()); x != nil {
			return x, 0, nil
		}
		return nil, 0, missing
	case bson.TypeEmbeddedDocument:
		if v, ok := value.Lookup(hint.Value, "$natural"); ok {
			if value.AsDouble(v) < 0 {
				return nil, -1, nil
			}
			return nil, 1, nil
		}
		if len(hint.Value) <= 5 {
			return nil, 0, nil // MongoDB takes an empty hint for none
		}
		for _, candidate := range c.Indexes {
			if !sameKey(candidate.Spec, hint.Value) {
				continue
			}
			if x != nil {
				return nil, 0, mongoerr.New(mongoerr.IndexNotFound, "error processing query: planner returned error :: caused by :: Hint matched multiple indexes, must hint by index name. Matched: %s and %s", x.Spec.Name, candidate.Spec.Name)
			}
			x = candidate
		}
		if x == nil {
			return nil, 0, missing
		}
		return x, 0, nil
	}
	return nil, 0, mongoerr.New(mongoerr.FailedToParse, "hint must be specified as a string or an object")
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

func singles(bounds [][]interval) bool {
	return !slices.ContainsFunc(bounds, func(b []interval) bool { return len(b) != 1 || !b[0].point })
}

// boundsOf returns the intervals of each field of x. Conditions on a field that
// may hold an array are not combined, since each may be met by another element;
// nor are those on two fields within the same array.
func boundsOf(x *storage.Index, conditions []*query.Node) (bounds [][]interval, present bool) {
	restricted := false // a field with arrays is
	for i, f := range x.Spec.Fields {
		list := all
		multikey := x.Multikey(i)
		if multikey && (restricted || hasNumber(f.Path)) {
			for _, n := range conditions {
				if n.Path == f.Path {
					_, here := intervalsOf(n)
					present = present || here
				}
			}
			bounds = append(bounds, all)
			continue
		}
		for _, n := range conditions {
			if n.Path != f.Path {
				continue
			}
			sub, here := intervalsOf(n)
			present = present || here
			switch {
			case isAll(sub):
			case x.Spec.Sparse && !here:
				// A sparse index has no key for an element without the field, though
				// the document is in it for another element's sake.
			case !multikey:
				list = intersect(list, sub)
			case isAll(list) || isPoints(sub) && (!isPoints(list) || len(sub) < len(list)):
				list = sub
			}
		}
		if multikey && !isAll(list) {
			restricted = true
		}
		bounds = append(bounds, list)
	}
	return bounds, present
}

// hasNumber reports whether a component of path may be an array's index.
func hasNumber(path string) bool {
	for part := range strings.SplitSeq(path, ".") {
		if part != "" && part[0] >= '0' && part[0] <= '9' {
			return true
		}
	}
	return false
}

// orderBy finds out whether scans of the index, one or merged, deliver the
// wanted order, and how.
func (k *candidate) orderBy(x *storage.Index, want []value.Field) bool {
	if !arraysAllow(x, k.bounds, want) {
		return false
	}
	branches := 1
	for skip := 0; ; skip++ {
		if ok, reverse := delivers(x, k.bounds, skip, want); ok {
			k.reverse, k.skip = reverse, skip
			k.prefixes = prefixesOf(x, k.bounds[:skip])
			return true
		}
		if skip == len(k.bounds) || !isPoints(k.bounds[skip]) {
			return false
		}
		if branches *= len(k.bounds[skip]); branches > maxBranches {
			return false
		}
	}
}

// arraysAllow reports whether the first key of a document in the index's order
// is the one its sort key is made of: of a sort field with arrays, all elements
// must be seen.
func arraysAllow(x *storage.Index, bounds [][]interval, want []value.Field) bool {
	sorting, restricted := 0, false
	for i, f := range x.Spec.Fields {
		if !x.Multikey(i) {
			continue
		}
		if slices.ContainsFunc(want, func(w value.Field) bool { return w.Path == f.Path }) {
			sorting++
		}
		restricted = restricted || !isAll(bounds[i])
	}
	// A sparse index lacks the elements without the field, which count as null.
	return sorting == 0 || sorting == 1 && !restricted && !x.Spec.Sparse
}

// delivers reports whether the fields of x from skip on give the wanted order,
// perhaps backwards. Fields with a single value do not count.
func delivers(x *storage.Index, bounds [][]interval, skip int, want []value.Field) (ok, reverse bool) {
	constant := func(path string) bool {
		i := slices.IndexFunc(x.Spec.Fields, func(f value.Field) bool { return f.Path == path })
		return i >= 0 && !x.Multikey(i) && len(bounds[i]) == 1 && bounds[i][0].point
	}
	decided := false
	at := skip
	for _, w := range want {
		if constant(w.Path) {
			continue
		}
		for at < len(bounds) && x.Spec.Fields[at].Path != w.Path && constant(x.Spec.Fields[at].Path) {
			at++
		}
		if at == len(bounds) || x.Spec.Fields[at].Path != w.Path {
			return false, false
		}
		backwards := x.Spec.Fields[at].Descending != w.Descending
		if decided && backwards != reverse {
			return false, false
		}
		decided, reverse = true, backwards
		at++
	}
	return true, reverse
}

// prefixesOf returns the keys of all combinations of points.
func prefixesOf(x *storage.Index, points [][]interval) []string {
	if len(points) == 0 {
		return nil
	}
	out := []string{""}
	for i, list := range points {
		var next []string
		for _, prefix := range out {
			for _, p := range list {
				if x.Spec.Fields[i].Descending {
					next = append(next, prefix+p.hi.bytes(true))
				} else {
					next = append(next, prefix+p.lo.bytes(false))
				}
			}
		}
		out = next
	}
	return out
}

// restrict prepares the scans' fields: those behind the prefix, up to the last
// that has bounds.
func (k *candidate) restrict(x *storage.Index) {
	last := k.skip
	for i := k.skip; i < len(k.bounds); i++ {
		f := fieldSpans{all: isAll(k.bounds[i])}
		if x.Spec.Fields[i].Descending {
			f.inv = 0xff
		}
		if !f.all {
			f.spans = spansOf(k.bounds[i], x.Spec.Fields[i].Descending)
			last = i + 1
		}
		k.fields = append(k.fields, f)
	}
	k.fields = k.fields[:last-k.skip]
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
