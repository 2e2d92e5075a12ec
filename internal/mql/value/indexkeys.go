package value

import (
	"bytes"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// Field is one field of an index key or of a sort order.
type Field struct {
	Path       string // dotted
	Descending bool
}

// IndexKeys returns the keys (AppendKey of each field, one after the other)
// that an index over fields holds for doc, sorted and without repetition.
// Arrays give a key for each element; a missing field counts as null and an
// empty array as undefined. multikey reports whether an array was on the way,
// even one of a single element.
//
// With sparse, a document that has none of the fields has no keys. Two
// different arrays in one document are refused with CannotIndexParallelArrays.
func IndexKeys(doc bson.Raw, fields []Field, sparse bool) (keys [][]byte, multikey bool, err error) {
	e := extraction{fields: fields, sparse: sparse}
	var buf [4]track
	tracks := buf[:0]
	for _, f := range fields {
		tracks = append(tracks, track{rest: f.Path})
	}
	if err := e.walk(doc, tracks); err != nil {
		return nil, false, err
	}
	if len(e.keys) > 1 {
		slices.SortFunc(e.keys, bytes.Compare)
		e.keys = slices.CompactFunc(e.keys, bytes.Equal)
	}
	return e.keys, e.multikey, nil
}

type extraction struct {
	fields   []Field
	sparse   bool
	keys     [][]byte
	multikey bool
}

// track is how far the path of one field was followed.
type track struct {
	rest  string        // what of the path remains; empty when v is final
	v     bson.RawValue // what was found: zero for nothing, or the array to go through
	array bool          // v is such an array

	// In an array, a number at the head of rest ("a.1.b") may name an element. What it
	// leads to is the same for each element that has no such field of its own.
	numbered bool
	nested   bool // the element it names is an array
	found    bson.RawValue
	after    string // what of rest remains behind found
}

// walk follows all tracks in obj as far as it can. It calls itself for each
// element of the array it finds, and adds a key when no array is left.
func (e *extraction) walk(obj []byte, tracks []track) error {
	through, whole := -1, false // the first track that found the array; its elements do not count
	for i := range tracks {
		t := &tracks[i]
		if t.rest == "" {
			continue
		}
		if !t.numbered {
			t.v, t.rest = along(obj, t.rest)
		} else if head, _, _ := strings.Cut(t.rest, "."); has(obj, head) {
			return mongoerr.New(16746, "Ambiguous field name found in array "+
				"(do not use numeric field names in embedded elements in an array), field: '%s'", head)
		} else {
			t.v, t.rest, t.numbered, whole = t.found, t.after, false, whole || t.nested
		}
		if t.array = t.v.Type == bson.TypeArray; !t.array {
			continue
		}
		if through < 0 {
			through = i
		} else if &tracks[through].v.Value[0] != &t.v.Value[0] {
			return mongoerr.New(mongoerr.CannotIndexParallelArrays,
				"cannot index parallel arrays [%s] [%s]", e.fields[i].Path, e.fields[through].Path)
		}
	}
	if through < 0 {
		e.add(tracks)
		return nil
	}
	e.multikey = true

	array := tracks[through].v.Value
	it := NewIter(array)
	if !it.Next() {
		return e.element(Undefined, tracks, false)
	}
	for i := range tracks {
		if t := &tracks[i]; t.array {
			head, _, _ := strings.Cut(t.rest, ".")
			elem, ok := Lookup(array, head)
			t.numbered, t.nested = ok, elem.Type == bson.TypeArray
			t.found, t.after = along(array, t.rest)
		}
	}
	for more := true; more; more = it.Next() {
		if err := e.element(it.Value, tracks, whole); err != nil {
			return err
		}
	}
	return nil
}

// element goes on in one element of the array that tracks have found.
func (e *extraction) element(elem bson.RawValue, tracks []track, whole bool) error {
	var buf [4]track
	tracks = append(buf[:0], tracks...)
	for i := range tracks {
		t := &tracks[i]
		if t.array && t.rest == "" && !whole {
			t.v = elem
		}
		t.array = false
	}
	var obj []byte
	if elem.Type == bson.TypeEmbeddedDocument {
		obj = elem.Value
	}
	return e.walk(obj, tracks)
}

func (e *extraction) add(tracks []track) {
	if e.sparse && !slices.ContainsFunc(tracks, func(t track) bool { return t.v.Type != 0 }) {
		return
	}
	key := make([]byte, 0, 24*len(tracks))
	for i, t := range tracks {
		if t.v.Type == 0 {
			t.v = Null
		}
		key = AppendKey(key, t.v, e.fields[i].Descending)
	}
	e.keys = append(e.keys, key)
}

func has(obj []byte, key string) bool {
	_, ok := Lookup(obj, key)
	return ok
}

// along follows path in obj to its end or to the first array, and returns what
// is there (a zero value if nothing) and what remains of the path.
func along(obj []byte, path string) (bson.RawValue, string) {
	for {
		head, rest, dotted := strings.Cut(path, ".")
		v, ok := Lookup(obj, head)
		switch {
		case !ok || dotted && !IsObject(v):
			return bson.RawValue{}, ""
		case !dotted:
			return v, ""
		case v.Type == bson.TypeArray:
			return v, rest
		}
		obj, path = v.Value, rest
	}
}

// MeetsArray reports whether an array is at path or on the way to it.
func MeetsArray(doc []byte, path string) bool {
	for {
		head, rest, more := strings.Cut(path, ".")
		v, ok := Lookup(doc, head)
		switch {
		case !ok:
			return false
		case v.Type == bson.TypeArray:
			return true
		case !more || v.Type != bson.TypeEmbeddedDocument:
			return false
		}
		doc, path = v.Value, rest
	}
}
