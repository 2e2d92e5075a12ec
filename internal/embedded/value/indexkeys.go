package value

import (
	"bytes"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
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
	if key, multikey, ok := plainKey(doc, fields, sparse); ok {
		if key != nil {
			keys = [][]byte{key}
		}
		return keys, multikey, nil
	}
	e := extraction{fields: fields, sparse: sparse}
	paths := make([]string, len(fields))
	for i, f := range fields {
		paths[i] = f.Path
	}
	if err := e.walk(paths, make([]bson.RawValue, len(fields)), doc, make([]position, len(fields)), 0); err != nil {
		return nil, false, err
	}
	if len(e.keys) > 1 {
		slices.SortFunc(e.keys, bytes.Compare)
		e.keys = slices.CompactFunc(e.keys, bytes.Equal)
	}
	return e.keys, e.multikey, nil
}

// plainKey is IndexKeys for a document with one key: without arrays on the way,
// or with a single array of one element at the end of a path; ok is false for all
// others. The key is nil when a sparse index has none.
func plainKey(doc bson.Raw, fields []Field, sparse bool) (key []byte, multikey, ok bool) {
	key = make([]byte, 0, 24*len(fields))
	missing := 0
	for _, f := range fields {
		v, rest := along(doc, f.Path)
		switch v.Type {
		case bson.TypeArray:
			it := NewIter(v.Value)
			if multikey || rest != "" || !it.Next() {
				return nil, false, false
			}
			multikey, v = true, it.Value
			if it.Next() {
				return nil, false, false
			}
		case 0:
			missing++
			v = Null
		}
		key = AppendKey(key, v, f.Descending)
	}
	if sparse && missing == len(fields) {
		return nil, multikey, true
	}
	return key, multikey, true
}

type extraction struct {
	fields   []Field
	sparse   bool
	keys     [][]byte
	multikey bool
}

// position is what a numeric path component ("a.1.b") found in an array,
// looked up once and then used for each element of it.
type position struct {
	set   bool
	elem  bson.RawValue // the array's element the component names
	rest  string        // what of the path remains after found
	found bson.RawValue // the value at the path, or the array on the way to it
}

// walk resolves paths in obj as far as it can; done ones are emptied and
// their values put in fixed. It calls itself for each element of the array it
// finds, and adds a key when no array is left.
func (e *extraction) walk(paths []string, fixed []bson.RawValue, obj []byte, pos []position, missing int) error {
	var array bson.RawValue
	var through []int
	expand := true
	for i, path := range paths {
		if path == "" {
			continue
		}
		v, rest, nested, err := next(obj, path, pos[i])
		if err != nil {
			return err
		}
		paths[i] = rest
		if nested {
			expand = false
		}
		switch {
		case v.Type == 0:
			fixed[i], paths[i] = Null, ""
			missing++
		case v.Type != bson.TypeArray:
			fixed[i], paths[i] = v, ""
		case array.Type == 0:
			array = v
			through = append(through, i)
		case &array.Value[0] != &v.Value[0]:
			return mongoerr.New(mongoerr.CannotIndexParallelArrays,
				"cannot index parallel arrays [%s] [%s]", e.fields[i].Path, e.fields[through[0]].Path)
		default:
			through = append(through, i)
		}
	}
	if array.Type == 0 {
		if !e.sparse || missing < len(fixed) {
			e.add(fixed)
		}
		return nil
	}
	e.multikey = true

	elements := NewIter(array.Value)
	if !elements.Next() {
		return e.element(paths, fixed, Undefined, array, through, true, make([]position, len(pos)), missing)
	}
	sub := make([]position, len(pos))
	for _, i := range through {
		if paths[i] == "" {
			continue
		}
		head, _, _ := strings.Cut(paths[i], ".")
		if elem, ok := Lookup(array.Value, head); ok {
			found, rest := along(array.Value, paths[i])
			sub[i] = position{set: true, elem: elem, rest: rest, found: found}
		}
	}
	for more := true; more; more = elements.Next() {
		if err := e.element(paths, fixed, elements.Value, array, through, expand, sub, missing); err != nil {
			return err
		}
	}
	return nil
}

func (e *extraction) element(paths []string, fixed []bson.RawValue, elem, array bson.RawValue, through []int, expand bool, pos []position, missing int) error {
	paths, fixed = slices.Clone(paths), slices.Clone(fixed)
	for _, i := range through {
		if paths[i] == "" {
			fixed[i] = array
			if expand {
				fixed[i] = elem
			}
		}
	}
	var obj []byte
	if elem.Type == bson.TypeEmbeddedDocument {
		obj = elem.Value
	}
	return e.walk(paths, fixed, obj, pos, missing)
}

func (e *extraction) add(fixed []bson.RawValue) {
	key := make([]byte, 0, 16*len(fixed))
	for i, v := range fixed {
		key = AppendKey(key, v, e.fields[i].Descending)
	}
	e.keys = append(e.keys, key)
}

// next finds path in obj or, failing that, where pos says; nested tells that
// the value is an array which is itself an element of an array.
func next(obj []byte, path string, pos position) (v bson.RawValue, rest string, nested bool, err error) {
	head, _, _ := strings.Cut(path, ".")
	if _, ok := Lookup(obj, head); ok {
		if pos.set {
			return v, "", false, mongoerr.New(16746, "Ambiguous field name found in array (do not use numeric field names in embedded elements in an array), field: '%s'", head)
		}
		v, rest = along(obj, path)
		return v, rest, false, nil
	}
	if pos.set {
		return pos.found, pos.rest, pos.elem.Type == bson.TypeArray, nil
	}
	return v, "", false, nil
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
