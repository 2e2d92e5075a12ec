package query

import (
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// An update is applied from the top: each node gets the old value at its place
// and returns what becomes of it; a level is written anew only if something
// below it changed. Children are asked in MongoDB's order, so that the first
// error is MongoDB's.

// result is what becomes of a value.
type result struct {
	act   action
	v     bson.RawValue // of set
	fresh bool          // there was no value
}

type action uint8

const (
	keep action = iota
	set
	remove
)

// place is what a leaf must know of where it stands.
type place struct {
	viable  bool // a missing value can be created here
	inArray bool // the path goes through an array
}

// env is one application of an update.
type env struct {
	ctx ApplyContext
	doc bson.Raw // before the update
}

// maxPadding is how far behind its end an array may be written to.
const maxPadding = 1_500_000

func (e *env) apply(n *node, old bson.RawValue, at place) (result, error) {
	switch {
	case n.mod != nil:
		if n.insertOnly && !e.ctx.Insert {
			return result{}, nil
		}
		return n.mod.apply(e, n, old, at)
	case n.array:
		return e.elements(n, old)
	case old.Type == bson.TypeEmbeddedDocument:
		return e.document(n, old.Value, at)
	case old.Type == bson.TypeArray:
		return e.array(n, old)
	}
	return e.create(n, place{viable: at.viable && old.Type == 0, inArray: at.inArray})
}

// kids are n's children with the one for `$` at the place it stands for.
func (e *env) kids(n *node) ([]child, error) {
	if n.positional == nil {
		return n.children, nil
	}
	if e.ctx.Positional < 0 {
		return nil, badValue("The positional operator did not find the match needed from the query.")
	}
	m := &node{children: slices.Clone(n.children)}
	err := m.mergeChild(strconv.Itoa(e.ctx.Positional), n.positional)
	return m.children, err
}

func (e *env) document(n *node, doc []byte, at place) (result, error) {
	kids, err := e.kids(n)
	if err != nil {
		return result{}, err
	}
	var buf [8]result
	results := buf[:0]
	size, changed := len(doc), false
	for _, k := range kids {
		old, _ := value.Lookup(doc, k.name)
		r, err := e.apply(k.node, old, place{viable: true, inArray: at.inArray})
		if err != nil {
			return result{}, err
		}
		if n.path == "" && k.name == "_id" && old.Type != 0 && (r.act == remove || r.act == set && !value.Equal(r.v, old)) {
			return result{}, mongoerr.New(mongoerr.ImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
		}
		changed = changed || r.act != keep
		r.fresh = old.Type == 0
		size += len(k.name) + 2 + len(r.v.Value)
		results = append(results, r)
	}
	if !changed {
		return result{}, nil
	}
	start, dst := value.Begin(make([]byte, 0, size))
	copied, pos := 4, 4 // doc[4:pos] is read, doc[4:copied] written
	for it := value.NewIter(doc); it.Next(); {
		start := pos
		pos += len(it.Element())
		i := slices.IndexFunc(kids, func(k child) bool { return k.name == string(it.Key) })
		if i < 0 || results[i].act == keep {
			continue
		}
		dst = append(dst, doc[copied:start]...)
		copied = pos
		if results[i].act == set {
			dst = value.AppendElement(dst, kids[i].name, results[i].v)
		}
	}
	dst = append(dst, doc[copied:pos]...)
	for i, r := range results {
		if r.act == set && r.fresh {
			dst = value.AppendElement(dst, kids[i].name, r.v)
		}
	}
	return result{act: set, v: value.Document(value.End(dst, start))}, nil
}

// array updates single elements, named by their index.
func (e *env) array(n *node, old bson.RawValue) (result, error) {
	kids, err := e.kids(n)
	if err != nil {
		return result{}, err
	}
	elems := values(old.Value)
	changed := false
	for _, k := range kids {
		i, ok := index(k.name)
		at := place{viable: ok && i <= len(elems)+maxPadding, inArray: true}
		if !ok || i >= len(elems) {
			r, err := e.apply(k.node, missing, at)
			if err != nil {
				return result{}, err
			}
			if r.act == set {
				for len(elems) < i {
					elems = append(elems, value.Null)
				}
				elems, changed = append(elems, r.v), true
			}
			continue
		}
		r, err := e.apply(k.node, elems[i], at)
		if err != nil {
			return result{}, err
		}
		changed = r.put(elems, i) || changed
	}
	if !changed {
		return result{}, nil
	}
	return result{act: set, v: value.Array(elems)}, nil
}

// put stores r as an element of an array, where removing leaves null.
func (r result) put(elems []bson.RawValue, i int) bool {
	switch r.act {
	case keep:
		return false
	case set:
		elems[i] = r.v
	case remove:
		elems[i] = value.Null
	}
	return true
}

// create makes the document that n needs where there is none.
func (e *env) create(n *node, at place) (result, error) {
	kids, err := e.kids(n)
	if err != nil {
		return result{}, err
	}
	var dst []byte
	var start int32
	for _, k := range kids {
		r, err := e.apply(k.node, missing, at)
		if err != nil {
			return result{}, err
		}
		if r.act != set {
			continue
		}
		if dst == nil {
			start, dst = value.Begin(nil)
		}
		dst = value.AppendElement(dst, k.name, r.v)
	}
	if dst == nil {
		return result{}, nil
	}
	return result{act: set, v: value.Document(value.End(dst, start))}, nil
}

// elements updates the elements of an array that the array filters choose.
func (e *env) elements(n *node, old bson.RawValue) (result, error) {
	if old.Type == 0 {
		return result{}, badValue("The path '%s' must exist in the document in order to apply array updates.", n.path)
	}
	if old.Type != bson.TypeArray {
		return result{}, badValue("Cannot apply array updates to non-array element %s: %s", n.path, old)
	}
	elems := values(old.Value)
	changed := false
	for i, elem := range elems {
		var chosen *node
		for _, c := range n.children {
			if c.name != "" && !n.filters[c.name].match(elem) {
				continue
			}
			if chosen == nil {
				chosen = c.node
				continue
			}
			var err error
			if chosen, err = merge(chosen, c.node); err != nil {
				return result{}, err
			}
		}
		if chosen == nil {
			continue
		}
		r, err := e.apply(chosen, elem, place{viable: true, inArray: true})
		if err != nil {
			return result{}, err
		}
		changed = r.put(elems, i) || changed
	}
	if !changed {
		return result{}, nil
	}
	return result{act: set, v: value.Array(elems)}, nil
}

// values are the elements of an array.
func values(array []byte) []bson.RawValue {
	vs := make([]bson.RawValue, 0, 8)
	for it := value.NewIter(array); it.Next(); {
		vs = append(vs, it.Value)
	}
	return vs
}
