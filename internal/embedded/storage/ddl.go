package storage

import (
	"crypto/rand"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// create makes a collection in the live state, or in the transaction's own. The
// store is locked.
func (w *Writer) create(ns string) (*Collection, error) {
	if err := CheckNamespace(ns); err != nil {
		return nil, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	w.s.nextColl++
	c := newCollection(ns, w.s.nextColl, bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]})
	if w.txn != nil {
		return w.txn.adopt(c), nil
	}
	w.s.live[ns] = c
	w.catalog(c)
	return c, nil
}

// catalog notes that a collection's definition changed.
func (w *Writer) catalog(c *Collection) {
	w.s.changed[c.Namespace] = struct{}{}
	w.note(func() fileOp { return putCatalog(c) })
}

// note adds a change to the open batch; op makes what the file needs of it. The
// store is locked.
func (w *Writer) note(op func() fileOp) {
	w.dirty = true
	w.batch = w.s.openBatch()
	if w.s.file != nil {
		w.batch.ops = append(w.batch.ops, op())
	}
}

// CheckDatabase refuses names of databases that MongoDB refuses.
func CheckDatabase(db string) error {
	if db == "" || len(db) > 63 || strings.ContainsAny(db, "/\\. \"$*<>:|?\x00") {
		return mongoerr.New(mongoerr.InvalidNamespace, "Invalid database name: '%s'", db)
	}
	return nil
}

// CheckNamespace refuses names of collections that MongoDB refuses. That of the
// database was checked.
func CheckNamespace(ns string) error {
	_, coll, _ := strings.Cut(ns, ".")
	switch {
	case coll == "" || coll[0] == '.' || strings.ContainsAny(coll, "$\x00") || len(ns) > 255:
		return mongoerr.New(mongoerr.InvalidNamespace, "Invalid collection name: '%s'", coll)
	case strings.HasPrefix(coll, "system."):
		return mongoerr.NotImplemented("the system collection " + coll)
	}
	return nil
}

// Create makes an empty collection; created is false when it was there.
func (w *Writer) Create(ns string) (created bool, err error) {
	c, err := w.target(ns)
	if err != nil || c != nil {
		return false, err
	}
	_, err = w.create(ns)
	return err == nil, err
}

// Drop removes a collection with its indexes; it returns how many indexes it
// had, and false when there is none.
func (w *Writer) Drop(ns string) (indexes int, dropped bool, err error) {
	c, err := w.target(ns)
	if err != nil || c == nil {
		return 0, false, err
	}
	delete(w.s.live, ns)
	w.s.changed[ns] = struct{}{}
	w.note(func() fileOp { return dropCollection(c.id) })
	w.event(&Event{Kind: Dropped, Namespace: ns})
	return len(c.Indexes), true, nil
}

// DropDatabase removes all collections of a database.
func (w *Writer) DropDatabase(db string) error {
	w.lock()
	var names []string
	for ns := range w.s.live {
		if strings.HasPrefix(ns, db+".") {
			names = append(names, ns)
		}
	}
	slices.Sort(names)
	for _, ns := range names {
		if _, _, err := w.Drop(ns); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		w.lock()
		w.event(&Event{Kind: DatabaseDropped, Namespace: db})
	}
	return nil
}

// event adds to the log. The store is locked.
func (w *Writer) event(e *Event) {
	e.TS = w.s.times.next(w.s.now)
	w.batch = w.s.openBatch()
	w.batch.events = append(w.batch.events, e)
	w.dirty = true
}

// CreateIndexes builds all of specs or none, creating the collection if needed.
// Those that exist already, with the same name and options, are passed over.
func (w *Writer) CreateIndexes(ns string, specs []*IndexSpec) (before, after int, created bool, err error) {
	c, err := w.target(ns)
	if err != nil {
		return 0, 0, false, err
	}
	existing := []*Index{newIndex(idSpec)}
	if c != nil {
		existing = c.Indexes
	}
	before = len(existing)
	var build []*Index
	for _, spec := range specs {
		exists, err := clash(append(slices.Clone(existing), build...), spec)
		if err != nil {
			return 0, 0, false, err
		}
		if !exists {
			build = append(build, newIndex(spec))
		}
	}
	if before+len(build) > maxIndexes {
		return 0, 0, false, mongoerr.New(mongoerr.CannotCreateIndex, "add index fails, too many indexes for %s", ns)
	}
	if c != nil {
		for _, x := range build {
			if err := c.build(x); err != nil {
				return 0, 0, false, err
			}
		}
	} else {
		created = true
		if c, err = w.create(ns); err != nil {
			return 0, 0, false, err
		}
	}
	if len(build) > 0 {
		c.Indexes = append(slices.Clone(c.Indexes), build...)
		c.dirty = true
		w.catalog(c)
	}
	return before, len(c.Indexes), created, nil
}

// clash reports whether spec is there already, and fails when it contradicts
// what is there.
func clash(existing []*Index, spec *IndexSpec) (bool, error) {
	for _, x := range existing {
		switch o := x.Spec; {
		case o == spec, o.Name == spec.Name && o.same(spec, true):
			return true, nil
		case o.Name == spec.Name && o.same(spec, false):
			return false, mongoerr.New(mongoerr.IndexOptionsConflict,
				"An equivalent index already exists with the same name but different options. Requested index: %s, existing index: %s", spec.Raw(), o.Raw())
		case o.Name == spec.Name:
			return false, mongoerr.New(mongoerr.IndexKeySpecsConflict,
				"An existing index has the same name as the requested index. When index names are not specified, they are auto generated and can cause conflicts. Please refer to our documentation. Requested index: %s, existing index: %s", spec.Raw(), o.Raw())
		case o.same(spec, true):
			return false, mongoerr.New(mongoerr.IndexOptionsConflict, "Index already exists with a different name: %s", o.Name)
		case o.same(spec, false):
			return false, mongoerr.New(mongoerr.IndexOptionsConflict,
				"An equivalent index already exists with a different name and options. Requested index: %s, existing index: %s", spec.Raw(), o.Raw())
		}
	}
	return false, nil
}

// build fills a new index from the documents.
func (c *Collection) build(x *Index) error {
	entries := make([]Entry, 0, c.docs.Len())
	var failed error
	c.docs.Scan(func(r Record) bool {
		keys, multikey, err := x.Spec.Keys(r.Doc)
		if err != nil {
			failed = err
			return false
		}
		x.multikey |= multikey
		for _, key := range keys {
			entries = append(entries, Entry{Key: string(key), RID: r.ID})
		}
		return true
	})
	if failed != nil {
		return failed
	}
	if _, b, found := x.load(entries); found {
		r, _ := c.Get(b.RID)
		return duplicate(c, x, []byte(b.Key), r.Doc)
	}
	return nil
}

// DropIndexes removes the indexes for which drop is true, never that of _id. It
// returns how many there were.
func (w *Writer) DropIndexes(ns string, drop func(*IndexSpec) bool) (before int, err error) {
	c, err := w.target(ns)
	if err != nil {
		return 0, err
	}
	if c == nil {
		return 0, mongoerr.New(mongoerr.NamespaceNotFound, "ns not found %s", ns)
	}
	before = len(c.Indexes)
	var keep []*Index
	for _, x := range c.Indexes {
		if x.Spec == idSpec || !drop(x.Spec) {
			keep = append(keep, x)
		}
	}
	c.Indexes = keep
	c.dirty = true
	w.catalog(c)
	return before, nil
}
