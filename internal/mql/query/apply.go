package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// An update is applied from the top: each node gets the old value at its place
// and returns what becomes of it; a level is written anew only if something
// below it changed. Children are asked in MongoDB's order, so that the first
// error is MongoDB's.

// change is what becomes of a value.
type change struct {
	act action
	v   bson.RawValue // of set
}

type action uint8

const (
	keep action = iota
	set
	remove
)

// put says that v takes the place.
func put(v bson.RawValue) change { return change{set, v} }

// grows is by how much a document becomes longer in which name had the value old: what is
// stored has no room behind it.
func (c change) grows(name string, old bson.RawValue) (n int) {
	if c.act == keep {
		return 0
	}
	if c.act == set {
		n = len(name) + 2 + len(c.v.Value)
	}
	if old.Type != 0 {
		n -= len(name) + 2 + len(old.Value)
	}
	return n
}

// place is what a leaf must know of where it stands.
type place struct {
	viable  bool // a missing value can be created here
	inArray bool // the path goes through an array
}

// env is one application of an update.
type env struct {
	ctx   ApplyContext
	doc   bson.Raw // before the update
	added int      // bytes that the result has for sure: what operators put in, and the padding of arrays
}

var emptyDoc = bson.Raw{5, 0, 0, 0, 0}

// maxPadding is how far behind its end an array may be written to.
const maxPadding = 1_500_000

// maxDocument is the largest document that can be stored.
const maxDocument = 16 << 20

// add counts bytes of the result before they are made: a short update may ask for any number of them.
func (e *env) add(n int) {
	if e.added += n; e.added > maxDocument {
		fail(mongoerr.BSONObjectTooLarge, "Resulting document after update is larger than %d", maxDocument)
	}
}

// padding is how many bytes the nulls at from and behind it take, up to that before to.
func padding(from, to int) int {
	n := (to - from) * len("\x0a0\x00")
	for ten := 10; ten < to; ten *= 10 {
		n += to - max(ten, from) // each has a digit more
	}
	return n
}

func (e *env) apply(n *node, old bson.RawValue, at place) change {
	switch {
	case n.mod != nil:
		if n.insertOnly && !e.ctx.Insert {
			return change{}
		}
		c := n.mod(e, n, old, at)
		if c.act == set {
			e.add(len(c.v.Value))
		}
		return c
	case n.array:
		return e.elements(n, old)
	case old.Type == bson.TypeEmbeddedDocument:
		return e.document(n, old.Value, place{viable: true, inArray: at.inArray})
	case old.Type == bson.TypeArray:
		return e.array(n, old)
	}
	return e.document(n, emptyDoc, place{viable: at.viable && old.Type == 0, inArray: at.inArray})
}

// kids are the children to apply. A `$` among them was not replaced: nothing is
// known that it stands for.
func (n *node) kids() []child {
	need(n.child("$") == nil, "The positional operator did not find the match needed from the query.")
	return n.children
}

// document updates fields; at is the place of each.
func (e *env) document(n *node, doc []byte, at place) change {
	kids := n.kids()
	var buf [8]change
	changes := buf[:0]
	size, changed := len(doc), false
	olds, places := fieldsOf(doc, kids)
	for _, k := range kids {
		old := olds[k.name]
		if olds == nil {
			old, _ = value.Lookup(doc, k.name)
		}
		c := e.apply(k.node, old, at)
		if n.path == "" && k.name == "_id" && old.Type != 0 && c.act != keep {
			// MongoDB compares no values here: an operator that writes an _id, equal or not, fails.
			fail(mongoerr.ImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
		}
		changed = changed || c.act != keep
		if c.act == set {
			e.add(len(k.name) + 2)
		}
		size += c.grows(k.name, old)
		changes = append(changes, c)
	}
	if !changed {
		return change{}
	}
	start, dst := value.Begin(make([]byte, 0, size))
	for it := value.NewIter(doc); it.Next(); {
		i, ok := places[string(it.Key)]
		if places == nil {
			i = slices.IndexFunc(kids, func(k child) bool { return k.name == string(it.Key) })
			ok = i >= 0
		}
		if !ok || changes[i].act == keep {
			dst = append(dst, it.Element()...)
			continue
		}
		if changes[i].act == set {
			dst = value.AppendElement(dst, kids[i].name, changes[i].v)
		}
		changes[i].act = keep // done
	}
	for i, c := range changes {
		if c.act == set {
			dst = value.AppendElement(dst, kids[i].name, c.v)
		}
	}
	return put(value.Document(value.End(dst, start)))
}

// fieldsOf finds what document needs of many fields and children without a search for
// each; of few it makes nothing.
func fieldsOf(doc []byte, kids []child) (olds map[string]bson.RawValue, places map[string]int) {
	if len(kids) <= fewFields {
		return nil, nil
	}
	places = make(map[string]int, len(kids))
	for i, k := range kids {
		places[k.name] = i
	}
	return byName(doc), places
}

// array updates single elements, named by their index.
func (e *env) array(n *node, old bson.RawValue) change {
	elems := value.Elements(old.Value)
	changed := false
	for _, k := range n.kids() {
		i, ok := index(k.name)
		at := place{viable: ok, inArray: true}
		if ok && i < len(elems) {
			changed = e.element(k.node, elems, i, at) || changed
			continue
		}
		if c := e.apply(k.node, missing, at); c.act == set {
			check(i <= len(elems)+maxPadding, mongoerr.CannotBackfillArray, "can't backfill more than %d elements", maxPadding)
			if more := i - len(elems); more > 0 {
				e.add(padding(len(elems), i))
				elems = slices.Grow(elems, more+1)
			}
			for len(elems) < i {
				elems = append(elems, value.Null)
			}
			elems, changed = append(elems, c.v), true
		}
	}
	return arrayIf(changed, elems)
}

// element updates one element of an array, where removing leaves null.
func (e *env) element(n *node, elems []bson.RawValue, i int, at place) (changed bool) {
	c := e.apply(n, elems[i], at)
	switch c.act {
	case set:
		elems[i] = c.v
	case remove:
		elems[i] = value.Null
	}
	return c.act != keep
}

// elements updates the elements of an array that the array filters choose.
func (e *env) elements(n *node, old bson.RawValue) change {
	need(old.Type != 0, "The path '%s' must exist in the document in order to apply array updates.", n.path)
	need(old.Type == bson.TypeArray, "Cannot apply array updates to non-array element %s: %s", n.path, old)
	elems := value.Elements(old.Value)
	changed := false
	for i, elem := range elems {
		var chosen *node
		for _, c := range n.children {
			if c.name != "" && !n.filters[c.name].match(elem) {
				continue
			}
			if chosen == nil {
				chosen = c.node
			} else {
				chosen = merge(chosen, c.node)
			}
		}
		if chosen != nil {
			changed = e.element(chosen, elems, i, place{viable: true, inArray: true}) || changed
		}
	}
	return arrayIf(changed, elems)
}

// arrayIf makes elems the array, if they changed.
func arrayIf(changed bool, elems []bson.RawValue) change {
	if !changed {
		return change{}
	}
	return put(value.Array(elems))
}
