package query

import (
	"bytes"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// description gathers the parts of an updateDescription.
type description struct {
	updated            []byte // elements of updatedFields: dotted path and new value
	removed, truncated []byte // elements of the arrays
	nRemoved, nCut     int
}

// Describe is the updateDescription of a change event: how old became new, in
// terms of the smallest changed fields. Documents and arrays present in both are
// compared below.
func Describe(old, new bson.Raw) bson.Raw {
	var d description
	d.document("", old, new)
	at, b := value.Begin(make([]byte, 0, 80+len(d.updated)+len(d.removed)+len(d.truncated)))
	for _, part := range []struct {
		name     string
		kind     bson.Type
		elements []byte
	}{
		{"updatedFields", bson.TypeEmbeddedDocument, d.updated},
		{"removedFields", bson.TypeArray, d.removed},
		{"truncatedArrays", bson.TypeArray, d.truncated},
	} {
		var sub int32
		b = bsoncore.AppendHeader(b, bsoncore.Type(part.kind), part.name)
		sub, b = value.Begin(b)
		b = value.End(append(b, part.elements...), sub)
	}
	return value.End(b, at)
}

func (d *description) document(prefix string, old, new []byte) {
	for it, at := value.NewIter(old), value.NewIter(new); it.Next(); {
		if _, ok := seek(&at, new, it.Key); !ok {
			d.removed = bsoncore.AppendStringElement(d.removed, strconv.Itoa(d.nRemoved), prefix+string(it.Key))
			d.nRemoved++
		}
	}
	for it, at := value.NewIter(new), value.NewIter(old); it.Next(); {
		was, _ := seek(&at, old, it.Key)
		d.value(prefix, it.Key, was, it.Value)
	}
}

// seek is value.Lookup in doc that looks first behind at, where it found the field
// before: updates leave most fields where they were.
func seek(at *value.Iter, doc, key []byte) (bson.RawValue, bool) {
	for it := *at; it.Next(); {
		if bytes.Equal(it.Key, key) {
			*at = it
			return it.Value, true
		}
	}
	return value.Lookup(doc, string(key))
}

func (d *description) value(prefix string, key []byte, old, new bson.RawValue) {
	if value.Identical(old, new) {
		return
	}
	path := prefix + string(key)
	switch {
	case old.Type == bson.TypeEmbeddedDocument && new.Type == bson.TypeEmbeddedDocument:
		d.document(path+".", old.Value, new.Value)
	case old.Type == bson.TypeArray && new.Type == bson.TypeArray:
		a, b := value.NewIter(old.Value), value.NewIter(new.Value)
		size := 0
		for ; b.Next(); size++ {
			if a.Next() {
				d.value(path+".", b.Key, a.Value, b.Value)
			} else {
				d.updated = value.AppendElement(d.updated, path+"."+string(b.Key), b.Value)
			}
		}
		if a.Next() {
			at, cut := value.Begin(nil)
			cut = bsoncore.AppendStringElement(cut, "field", path)
			cut = value.End(bsoncore.AppendInt32Element(cut, "newSize", int32(size)), at)
			d.truncated = bsoncore.AppendDocumentElement(d.truncated, strconv.Itoa(d.nCut), cut)
			d.nCut++
		}
	default:
		d.updated = value.AppendElement(d.updated, path, new)
	}
}

// Changed returns the top-level fields that differ between two documents.
func Changed(old, new bson.Raw) (fields [][]byte) {
	for it, at := value.NewIter(old), value.NewIter(new); it.Next(); {
		if is, ok := seek(&at, new, it.Key); !ok || !value.Identical(it.Value, is) {
			fields = append(fields, it.Key)
		}
	}
	for it, at := value.NewIter(new), value.NewIter(old); it.Next(); {
		if _, ok := seek(&at, old, it.Key); !ok {
			fields = append(fields, it.Key)
		}
	}
	return fields
}
