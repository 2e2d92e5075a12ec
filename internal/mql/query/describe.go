package query

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Path is a path that an update writes to.
type Path struct {
	Dotted string
	Pushed int // how many elements a $push adds, 0 if it does more than that
}

// description gathers the parts of an updateDescription.
type description struct {
	updated  []byte // elements of updatedFields: dotted path and new value
	removed  []byte // elements of removedFields
	nRemoved int
}

// Describe is the updateDescription of a change event: how old became new by an
// update that writes to paths. It names those paths, or what had to be created for
// them, and tells an array whole that the update itself wrote to, or of which a filter
// changed several elements; what only grew by a $push has the new elements.
func Describe(old, new bson.Raw, paths []Path) bson.Raw {
	var d description
	list := make([]written, len(paths))
	for i, p := range paths {
		list[i] = written{strings.Split(p.Dotted, "."), p.Pushed}
	}
	d.document("", old, new, list)
	at, b := value.Begin(make([]byte, 0, 80+len(d.updated)+len(d.removed)))
	for _, part := range []struct {
		name     string
		kind     bson.Type
		elements []byte
	}{
		{"updatedFields", bson.TypeEmbeddedDocument, d.updated},
		{"removedFields", bson.TypeArray, d.removed},
		{"truncatedArrays", bson.TypeArray, nil}, // by pipelines only
	} {
		var sub int32
		b = bsoncore.AppendHeader(b, bsoncore.Type(part.kind), part.name)
		sub, b = value.Begin(b)
		b = value.End(append(b, part.elements...), sub)
	}
	return value.End(b, at)
}

// written is what remains of a path below some value.
type written struct {
	names  []string
	pushed int
}

// below sorts paths by the field or element they lead through: of one called name, it
// is what remains of them; element tells that an element was there, for which `$` may
// stand, and what is like it. An update may have a path for each of a hundred thousand
// fields.
func below(paths []written) func(name string, element bool) []written {
	named := make(map[string][]written, len(paths))
	var anywhere []written
	for _, p := range paths {
		name, rest := p.names[0], written{p.names[1:], p.pushed}
		if name == "$" || isFilterName(name) {
			anywhere = append(anywhere, rest)
		} else {
			named[name] = append(named[name], rest)
		}
	}
	return func(name string, element bool) []written {
		if !element {
			return named[name]
		}
		return append(slices.Clip(named[name]), anywhere...)
	}
}

func (d *description) document(prefix string, old, new []byte, paths []written) {
	for it, to := value.NewIter(old), newFinder(new); it.Next(); {
		if _, ok := to.find(it.Key); !ok {
			d.removed = bsoncore.AppendStringElement(d.removed, strconv.Itoa(d.nRemoved), prefix+string(it.Key))
			d.nRemoved++
		}
	}
	rest := below(paths)
	for it, from := value.NewIter(new), newFinder(old); it.Next(); {
		was, _ := from.find(it.Key)
		if !value.Identical(was, it.Value) {
			d.value(prefix+string(it.Key), was, it.Value, rest(string(it.Key), false))
		}
	}
}

// fewFields is how many fields are looked for one by one, before a map is made.
const fewFields = 12

// finder looks for many fields of a document. It looks first behind the one it found
// before: updates leave most fields where they were. After some that are not there, it
// makes a map.
type finder struct {
	doc    []byte
	at     value.Iter
	missed int
	fields map[string]bson.RawValue
}

func newFinder(doc []byte) finder { return finder{doc: doc, at: value.NewIter(doc)} }

// find is value.Lookup.
func (f *finder) find(key []byte) (bson.RawValue, bool) {
	next := f.at
	if next.Next() && bytes.Equal(next.Key, key) {
		f.at = next
		return next.Value, true
	}
	if f.missed++; f.missed > fewFields {
		if f.fields == nil {
			f.fields = byName(f.doc)
		}
		v, ok := f.fields[string(key)]
		return v, ok
	}
	for it := f.at; it.Next(); {
		if bytes.Equal(it.Key, key) {
			f.at = it
			return it.Value, true
		}
	}
	return value.Lookup(f.doc, string(key))
}

// byName is the fields of a document; of two that have one name, the first.
func byName(doc []byte) map[string]bson.RawValue {
	fields := map[string]bson.RawValue{}
	for it := value.NewIter(doc); it.Next(); {
		if _, twice := fields[string(it.Key)]; !twice {
			fields[string(it.Key)] = it.Value
		}
	}
	return fields
}

// value tells of a value that changed.
func (d *description) value(path string, old, new bson.RawValue, paths []written) {
	end := slices.IndexFunc(paths, func(p written) bool { return len(p.names) == 0 })
	switch arrays := old.Type == bson.TypeArray && new.Type == bson.TypeArray; {
	case arrays && end >= 0 && paths[end].pushed > 0:
		a, b := value.Elements(old.Value), value.Elements(new.Value)
		if len(a) > 0 && len(b) == len(a)+paths[end].pushed {
			for i, v := range b[len(a):] {
				d.updated = value.AppendElement(d.updated, path+"."+strconv.Itoa(len(a)+i), v)
			}
			return
		}
	case len(paths) == 0 || end >= 0:
	case old.Type == bson.TypeEmbeddedDocument && new.Type == bson.TypeEmbeddedDocument:
		d.document(path+".", old.Value, new.Value, paths)
		return
	case arrays && d.array(path+".", value.Elements(old.Value), value.Elements(new.Value), paths):
		return
	}
	d.updated = value.AppendElement(d.updated, path, new)
}

// array tells of the elements that changed, unless the whole array is to be told.
func (d *description) array(prefix string, old, new []bson.RawValue, paths []written) bool {
	for i, p := range paths {
		if n, ok := index(p.names[0]); ok { // "01" is the element 1 too
			paths[i].names = append([]string{strconv.Itoa(n)}, p.names[1:]...)
		}
	}
	var changed []int
	for i, v := range new {
		if i >= len(old) || !value.Identical(old[i], v) {
			changed = append(changed, i)
		}
	}
	if len(changed) > 1 && slices.ContainsFunc(paths, func(p written) bool { return isFilterName(p.names[0]) }) {
		return false
	}
	rest := below(paths)
	all := slices.ContainsFunc(paths, func(p written) bool { return p.names[0] == "$[]" })
	for _, i := range changed {
		was, index := missing, strconv.Itoa(i)
		if i < len(old) {
			was = old[i]
		}
		switch list := rest(index, i < len(old)); {
		case list == nil: // padding
		case all && len(old) > 1: // one of several elements it was applied to is told whole
			d.updated = value.AppendElement(d.updated, prefix+index, new[i])
		default:
			d.value(prefix+index, was, new[i], list)
		}
	}
	return true
}

// Changed returns the top-level fields that differ between two documents.
func Changed(old, new bson.Raw) (fields [][]byte) {
	for it, to := value.NewIter(old), newFinder(new); it.Next(); {
		if is, ok := to.find(it.Key); !ok || !value.Identical(it.Value, is) {
			fields = append(fields, it.Key)
		}
	}
	for it, from := value.NewIter(new), newFinder(old); it.Next(); {
		if _, ok := from.find(it.Key); !ok {
			fields = append(fields, it.Key)
		}
	}
	return fields
}
