package embedded

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// change runs a command that changes what collections and indexes there are.
func (r *request) change(do func(w *storage.Writer) error) (err error) {
	if r.err != nil {
		return r.err
	}
	w := r.s.store.Writer(r.ctx, r.txn)
	defer w.FinishWith(&err)
	return do(w)
}

func runCreate(r *request) (*docBuilder, error) {
	ns := r.namespace()
	return newDoc(), r.change(func(w *storage.Writer) error {
		created, err := w.Create(ns)
		if err == nil && !created {
			err = mongoerr.New(mongoerr.NamespaceExists, "Collection already exists. NS: %s", ns)
		}
		return err
	})
}

func runDrop(r *request) (*docBuilder, error) {
	ns := r.namespace()
	d := newDoc()
	return d, r.change(func(w *storage.Writer) error {
		indexes, dropped, err := w.Drop(ns)
		if err == nil && !dropped {
			err = mongoerr.New(mongoerr.NamespaceNotFound, "ns not found")
		}
		d.int32("nIndexesWas", indexes).string("ns", ns)
		return err
	})
}

func runDropDatabase(r *request) (*docBuilder, error) {
	if n, ok := value.AsInteger(r.subject()); !ok || n != 1 {
		return nil, mongoerr.New(mongoerr.BadValue, "Have to pass 1 as 'dropDatabase' parameter")
	}
	return newDoc().string("dropped", r.db), r.change(func(w *storage.Writer) error { return w.DropDatabase(r.db) })
}

func runCreateIndexes(r *request) (*docBuilder, error) {
	ns, list := r.namespace(), r.list("indexes")
	if r.err == nil && len(list) == 0 {
		r.fail(mongoerr.New(mongoerr.BadValue, "Must specify at least one index to create"))
	}
	specs := make([]*storage.IndexSpec, len(list))
	for i, raw := range list {
		var err error
		if specs[i], err = storage.ParseIndexSpec(raw); err == nil && specs[i].Name == "*" { // to drop it would be to drop all
			err = mongoerr.New(mongoerr.BadValue, "The index name '*' is not valid.")
		}
		r.fail(err)
	}
	d := newDoc()
	return d, r.change(func(w *storage.Writer) error {
		before, after, created, err := w.CreateIndexes(ns, specs)
		d.int32("numIndexesBefore", before).int32("numIndexesAfter", after).bool("createdCollectionAutomatically", created)
		if before == after && !created {
			d.string("note", "all indexes already exist")
		}
		return err
	})
}

// runDropIndexes drops indexes by name, by a list of names, by key, or all ("*").
func runDropIndexes(r *request) (*docBuilder, error) {
	ns, c := r.existing()
	which := r.get("index")
	names, byName := []string{which.String()}, true
	switch which.Type {
	case bson.TypeString:
		names[0] = which.StringValue()
	case bson.TypeArray:
		names = nil
		for it := value.NewIter(which.Value); it.Next(); {
			name, _ := it.Value.StringValueOK()
			names = append(names, name)
		}
	case bson.TypeEmbeddedDocument:
		byName = false
	default:
		r.wrongType("index", "string, object or array", which)
	}
	drop := map[*storage.IndexSpec]bool{}
	if r.err == nil {
		for _, name := range names {
			found := 0
			for _, x := range c.Indexes {
				switch all := name == "*" && which.Type == bson.TypeString; {
				case all: // but for _id, which stays
				case byName && x.Spec.Name != name, !byName && !value.Equal(value.Document(x.Spec.Key), which):
					continue
				case x.Spec.Name == "_id_":
					r.fail(mongoerr.New(mongoerr.InvalidOptions, "cannot drop _id index"))
				}
				found++
				drop[x.Spec] = true
			}
			switch {
			case found == 0:
				r.fail(mongoerr.New(mongoerr.IndexNotFound, "index not found with name [%s]", name))
			case found > 1 && !byName:
				r.fail(mongoerr.New(mongoerr.AmbiguousIndexKeyPattern, "%d indexes found for key: %s, identify by name instead", found, name))
			}
		}
	}
	d := newDoc()
	return d, r.change(func(w *storage.Writer) error {
		before, err := w.DropIndexes(ns, func(s *storage.IndexSpec) bool { return drop[s] })
		d.int32("nIndexesWas", before)
		return err
	})
}

// listReply answers with a cursor over documents made beforehand.
func (r *request) listReply(ns string, docs []bson.Raw) (*docBuilder, error) {
	size := r.cursorBatch(false)
	if r.err != nil {
		return nil, r.err
	}
	return r.firstBatch(&cursor{ns: ns, holds: true, next: func() (doc bson.Raw, ok bool, err error) {
		if ok = len(docs) > 0; ok {
			doc, docs = docs[0], docs[1:]
		}
		return doc, ok, nil
	}}, size, false)
}

func runListIndexes(r *request) (*docBuilder, error) {
	ns, c := r.existing()
	if r.err != nil {
		return nil, r.err
	}
	var docs []bson.Raw
	for _, x := range c.Indexes {
		docs = append(docs, x.Spec.Raw())
	}
	return r.listReply(ns, docs)
}

func runListCollections(r *request) (*docBuilder, error) {
	filter, nameOnly := r.filter("filter"), r.boolean("nameOnly")
	if r.err != nil {
		return nil, r.err
	}
	var docs []bson.Raw
	r.s.store.Snapshot().Each(func(c *storage.Collection) bool {
		if name, ok := strings.CutPrefix(c.Namespace, r.db+"."); ok {
			d := newDoc().string("name", name).string("type", "collection")
			if !nameOnly {
				d.openDoc("options").close().openDoc("info").bool("readOnly", false).any("uuid", c.UUID()).close()
				d.doc("idIndex", c.Indexes[0].Spec.Raw())
			}
			if doc := d.end(); filter.Match(doc) {
				docs = append(docs, doc)
			}
		}
		return true
	})
	return r.listReply(r.db+".$cmd.listCollections", docs)
}

func runListDatabases(r *request) (*docBuilder, error) {
	filter, nameOnly := r.filter("filter"), r.boolean("nameOnly")
	if r.err != nil {
		return nil, r.err
	}
	list, last := newDoc(), ""
	r.s.store.Snapshot().Each(func(c *storage.Collection) bool { // by name
		db, _, _ := strings.Cut(c.Namespace, ".")
		d := newDoc().string("name", db)
		if !nameOnly {
			d.int64("sizeOnDisk", 0).bool("empty", false)
		}
		if entry := d.end(); db != last && filter.Match(entry) {
			list.doc(arrayKey(list.n), entry)
			list.n++
		}
		last = db
		return true
	})
	d := newDoc().openArray("databases").elements(list.end()).close()
	if !nameOnly {
		d.int64("totalSize", 0)
	}
	return d, nil
}
