package storage

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// treeDegree keeps nodes small: a write after a snapshot copies one node a
// level.
const treeDegree = 16

// Record is one version of a document. Versions never change; an update makes
// another with the same ID. IDs rise with insertion, so their order is the
// natural order of a collection.
type Record struct {
	ID  uint64
	Doc bson.Raw
}

// Same tells whether two records are the same version, without comparing bytes.
func (r Record) Same(o Record) bool {
	return r.ID == o.ID && len(r.Doc) == len(o.Doc) && (len(r.Doc) == 0 || &r.Doc[0] == &o.Doc[0])
}

// bytes is about what it takes, with its keys and the nodes of trees that lead to it.
func (r Record) bytes() int {
	if r.Doc == nil {
		return 0
	}
	return len(r.Doc) + 256
}

// Collection is the documents of one namespace and their indexes, at one moment
// when it was frozen (what readers get), or as the one writer sees it.
type Collection struct {
	Namespace string   // database.collection
	Indexes   []*Index // the first is always _id_

	id     uint64 // names the collection in the file; a dropped one's is not used again
	uuid   bson.Binary
	docs   *btree.BTreeG[Record]
	bytes  int         // of all documents, about
	gone   int         // bytes of documents that were overwritten or deleted, ever
	dirty  bool        // changed since frozen
	frozen *Collection // the last frozen copy, current unless dirty
}

func newCollection(ns string, id uint64, uuid bson.Binary) *Collection {
	c := &Collection{
		Namespace: ns, id: id, uuid: uuid, dirty: true,
		docs: btree.NewBTreeGOptions(func(a, b Record) bool { return a.ID < b.ID },
			btree.Options{Degree: treeDegree, NoLocks: true}),
	}
	c.Indexes = []*Index{newIndex(idSpec)}
	return c
}

// UUID identifies this life of the collection.
func (c *Collection) UUID() bson.Binary { return c.uuid }

// Len returns the number of documents.
func (c *Collection) Len() int { return c.docs.Len() }

// KeptAlive is how many bytes a frozen collection keeps alive that now has not any
// more, at most; now is nil when it was dropped.
func (c *Collection) KeptAlive(now *Collection) int {
	if now == nil || now.id != c.id {
		return c.bytes
	}
	return min(c.bytes, now.gone-c.gone)
}

// Age compares when two of one name were frozen: below 0 when c is the older one.
func (c *Collection) Age(o *Collection) int {
	return cmp.Or(cmp.Compare(c.id, o.id), cmp.Compare(c.gone, o.gone))
}

// Get returns the record with the given id.
func (c *Collection) Get(id uint64) (Record, bool) { return c.docs.Get(Record{ID: id}) }

// Scan returns an iterator in natural order. The collection must not change
// while it is used: it is for frozen ones.
func (c *Collection) Scan() *btree.IterG[Record] {
	it := c.docs.Iter()
	return &it
}

// ByID returns the document with the given _id.
func (c *Collection) ByID(id bson.RawValue) (Record, bool) {
	var buf [64]byte
	e, ok := c.Indexes[0].first(string(value.AppendKey(buf[:0], id, false)))
	if !ok {
		return Record{}, false
	}
	return c.Get(e.RID)
}

// Index returns the index of that name, nil when there is none.
func (c *Collection) Index(name string) *Index {
	if i := slices.IndexFunc(c.Indexes, func(x *Index) bool { return x.Spec.Name == name }); i >= 0 {
		return c.Indexes[i]
	}
	return nil
}

// freeze returns the collection as it is now, for readers; cheap, and free when
// nothing changed since the last time. Only the writer may call it.
func (c *Collection) freeze() *Collection {
	if !c.dirty {
		return c.frozen
	}
	c.frozen, c.dirty = c.copy((*Index).freeze), false
	return c.frozen
}

func (c *Collection) copy(index func(*Index) *Index) *Collection {
	f := &Collection{Namespace: c.Namespace, id: c.id, uuid: c.uuid, docs: c.docs.Copy(), bytes: c.bytes, gone: c.gone}
	for _, x := range c.Indexes {
		f.Indexes = append(f.Indexes, index(x))
	}
	return f
}

// thaw returns a collection to write to that begins as the frozen c. The caller
// holds the store's lock: copying a tree marks its source.
func (c *Collection) thaw() *Collection {
	w := c.copy((*Index).thaw)
	w.frozen = c
	return w
}

// change is a checked write of one document, ready to be applied.
type change struct {
	before, after Record // after.Doc is nil for a delete, before.Doc for an insert
	edits         []indexEdit
}

// indexEdit is what a change does to one index.
type indexEdit struct {
	index     int
	drop, add [][]byte
	multikey  uint64 // the fields that become multikey
}

// prepare computes what a write does to the indexes; those over fields that stay
// the same are not looked at. It fails with CannotIndexParallelArrays and the
// like, and leaves the collection alone.
func (c *Collection) prepare(before, after Record) (change, error) {
	ch := change{before: before, after: after}
	update := before.Doc != nil && after.Doc != nil
	var touched [][]byte
	if update {
		touched = query.Changed(before.Doc, after.Doc)
	}
	for i, x := range c.Indexes {
		if update && !x.Spec.touchedBy(touched) {
			continue
		}
		e := indexEdit{index: i}
		var err error
		if before.Doc != nil {
			// What is stored was indexed once: it cannot fail now.
			e.drop, _, _ = x.Spec.Keys(before.Doc)
		}
		if after.Doc != nil {
			if e.add, e.multikey, err = x.Spec.Keys(after.Doc); err != nil {
				return change{}, err
			}
		}
		if update {
			e.drop, e.add = difference(e.drop, e.add)
		}
		if len(e.drop) > 0 || len(e.add) > 0 || e.multikey&^x.multikey != 0 {
			ch.edits = append(ch.edits, e)
		}
	}
	return ch, nil
}

// taken returns the first unique key that ch adds and another record holds.
// Records for which mine is true do not count; mine may be nil.
func (c *Collection) taken(ch change, mine func(id uint64) bool) (x *Index, key []byte) {
	for _, e := range ch.edits {
		x := c.Indexes[e.index]
		if !x.Spec.Unique {
			continue
		}
		for _, key := range e.add {
			if found, ok := x.first(string(key)); ok && found.RID != ch.after.ID && (mine == nil || !mine(found.RID)) {
				return x, key
			}
		}
	}
	return nil, nil
}

// apply carries out a prepared change.
func (c *Collection) apply(ch change) {
	c.dirty = true
	c.gone += ch.before.bytes()
	c.bytes += ch.after.bytes() - ch.before.bytes()
	id := ch.before.ID
	if ch.after.Doc != nil {
		id = ch.after.ID
		c.docs.Set(ch.after)
	} else {
		c.docs.Delete(ch.before)
	}
	for _, e := range ch.edits {
		c.Indexes[e.index].apply(id, e)
	}
}
