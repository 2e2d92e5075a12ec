package embedded

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

func runCreate(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	w := r.s.store.Writer(r.ctx, r.txn)
	created, err := w.Create(ns)
	if e := w.Finish(); err == nil {
		err = e
	}
	if err == nil && !created {
		err = mongoerr.New(mongoerr.NamespaceExists, "Collection already exists. NS: %s", ns)
	}
	return newDoc(), err
}

func runDrop(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	w := r.s.store.Writer(r.ctx, nil)
	n, dropped, err := w.Drop(ns)
	if e := w.Finish(); err == nil {
		err = e
	}
	if err == nil && !dropped {
		err = mongoerr.New(mongoerr.NamespaceNotFound, "ns not found")
	}
	return newDoc().int32("nIndexesWas", n).string("ns", ns), err
}

func runDropDatabase(r *request) (*docBuilder, error) {
	w := r.s.store.Writer(r.ctx, nil)
	err := w.DropDatabase(r.db)
	if e := w.Finish(); err == nil {
		err = e
	}
	return newDoc().string("dropped", r.db), err
}

func runCreateIndexes(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	list, err := r.list("indexes")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, mongoerr.New(mongoerr.BadValue, "Must specify at least one index to create")
	}
	var specs []*storage.IndexSpec
	for _, raw := range list {
		spec, err := storage.ParseIndexSpec(raw)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	w := r.s.store.Writer(r.ctx, nil)
	before, after, created, err := w.CreateIndexes(ns, specs)
	if e := w.Finish(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	d := newDoc().int32("numIndexesBefore", before).int32("numIndexesAfter", after).bool("createdCollectionAutomatically", created)
	if before == after && !created {
		d.string("note", "all indexes already exist")
	}
	return d, nil
}

func runDropIndexes(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	c := r.collection(ns)
	if c == nil {
		return nil, mongoerr.New(mongoerr.NamespaceNotFound, "ns not found %s", ns)
	}
	which := r.get("index")
	names := map[string]bool{}
	add := func(match func(*storage.IndexSpec) bool, what string) error {
		for _, x := range c.Indexes {
			if match(x.Spec) {
				if x.Spec.Name == "_id_" {
					return mongoerr.New(mongoerr.InvalidOptions, "cannot drop _id index")
				}
				names[x.Spec.Name] = true
				return nil
			}
		}
		return mongoerr.New(mongoerr.IndexNotFound, "index not found with name [%s]", what)
	}
	byName := func(name string) error {
		return add(func(s *storage.IndexSpec) bool { return s.Name == name }, name)
	}
	switch {
	case which.Type == bson.TypeString && which.StringValue() == "*":
		for _, x := range c.Indexes[1:] {
			names[x.Spec.Name] = true
		}
	case which.Type == bson.TypeString:
		err = byName(which.StringValue())
	case which.Type == bson.TypeArray:
		for it := value.NewIter(which.Value); it.Next() && err == nil; {
			name, _ := it.Value.StringValueOK()
			err = byName(name)
		}
	case which.Type == bson.TypeEmbeddedDocument:
		err = add(func(s *storage.IndexSpec) bool { return string(s.Key) == string(which.Value) }, which.String())
	default:
		err = r.wrongType("index", "string, object or array", which)
	}
	if err != nil {
		return nil, err
	}
	w := r.s.store.Writer(r.ctx, nil)
	before, err := w.DropIndexes(ns, func(s *storage.IndexSpec) bool { return names[s.Name] })
	if e := w.Finish(); err == nil {
		err = e
	}
	return newDoc().int32("nIndexesWas", before), err
}

// listSource delivers documents made beforehand.
type listSource struct{ docs []bson.Raw }

func (s *listSource) next() (bson.Raw, bool, error) {
	if len(s.docs) == 0 {
		return nil, false, nil
	}
	doc := s.docs[0]
	s.docs = s.docs[1:]
	return doc, true, nil
}

func (s *listSource) close() {}

func (r *request) listReply(ns string, docs []bson.Raw) (*docBuilder, error) {
	size := defaultBatch
	if v := r.get("cursor"); v.Type == bson.TypeEmbeddedDocument {
		batch, _ := bson.Raw(v.Value).LookupErr("batchSize")
		var err error
		if size, err = r.batchSize(batch); err != nil {
			return nil, err
		}
	}
	return r.firstBatch(&cursor{ns: ns, src: &listSource{docs}}, size, false)
}

func runListIndexes(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	c := r.collection(ns)
	if c == nil {
		return nil, mongoerr.New(mongoerr.NamespaceNotFound, "ns does not exist: %s", ns)
	}
	var docs []bson.Raw
	for _, x := range c.Indexes {
		docs = append(docs, x.Spec.Raw())
	}
	return r.listReply(ns, docs)
}

func runListCollections(r *request) (*docBuilder, error) {
	filter, err := r.filter("filter")
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	r.s.store.Snapshot().Each(func(c *storage.Collection) bool {
		name, ok := strings.CutPrefix(c.Namespace, r.db+".")
		if !ok {
			return true
		}
		d := newDoc().string("name", name).string("type", "collection").openDoc("options").close()
		d.openDoc("info").bool("readOnly", false).any("uuid", c.UUID()).close()
		d.doc("idIndex", c.Indexes[0].Spec.Raw())
		if doc := d.end(); filter.Match(doc) {
			docs = append(docs, doc)
		}
		return true
	})
	return r.listReply(r.db+".$cmd.listCollections", docs)
}

func runListDatabases(r *request) (*docBuilder, error) {
	filter, err := r.filter("filter")
	if err != nil {
		return nil, err
	}
	sizes := map[string]int{}
	var names []string
	r.s.store.Snapshot().Each(func(c *storage.Collection) bool {
		db, _, _ := strings.Cut(c.Namespace, ".")
		if _, ok := sizes[db]; !ok {
			names = append(names, db)
		}
		sizes[db] += c.Len()
		return true
	})
	d := newDoc().openArray("databases")
	n := 0
	for _, name := range names {
		entry := newDoc().string("name", name).int64("sizeOnDisk", 0).bool("empty", sizes[name] == 0).end()
		if filter.Match(entry) {
			d.doc(arrayKey(n), entry)
			n++
		}
	}
	return d.close().int64("totalSize", 0), nil
}
