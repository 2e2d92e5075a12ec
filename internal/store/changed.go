package store

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
)

var registry = codec.Registry()

// changed is the update that turns the document of before into that of after, by their
// fields. Fields that neither knows are never touched.
func changed[T any](before, after *T) (bson.D, error) {
	was, is := *before, *after
	forgetEqual(&was, &is)
	old, err := fieldsOf(&was)
	if err != nil {
		return nil, err
	}
	now, err := fieldsOf(&is)
	if err != nil {
		return nil, err
	}
	var set, unset bson.D
	stays := make([]bool, len(old))
	at := 0 // the two are of one type, so their fields come in one order
	for _, e := range now {
		i := lookup(old, nameOf(e), at)
		if i >= 0 {
			stays[i], at = true, i+1
		}
		if i < 0 || !bytes.Equal(old[i], e) {
			set = append(set, d(e.Key(), e.Value()))
		}
	}
	for i, e := range old {
		if !stays[i] {
			unset = append(unset, d(e.Key(), ""))
		}
	}
	return setAndUnset(set, unset), nil
}

// forgetEqual makes zero the fields in which two values of a struct are equal, since to encode the rest is cheap.
// All fields of T are exported.
func forgetEqual[T any](a, b *T) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		if f, g := x.Field(i), y.Field(i); reflect.DeepEqual(f.Interface(), g.Interface()) {
			f.SetZero()
			g.SetZero()
		}
	}
}

// replaced is the update that makes a stored document say what v says: it sets all that v says and
// takes away what v could say and does not. What another release put there stays, and so do the
// fields that are named. Every field of T has its name in its struct tag.
func replaced[T any](v *T, stay ...string) (bson.D, error) {
	says, err := fieldsOf(v)
	if err != nil {
		return nil, err
	}
	var set, unset bson.D
	at := 0 // the document has its fields in the order of the struct
	for t, n := reflect.TypeFor[T](), 0; n < t.NumField(); n++ {
		name, _, _ := strings.Cut(t.Field(n).Tag.Get("bson"), ",")
		i := lookup(says, []byte(name), at)
		if i >= 0 {
			at = i + 1
		}
		switch {
		case slices.Contains(stay, name):
		case i >= 0:
			set = append(set, d(name, says[i].Value()))
		default:
			unset = append(unset, d(name, ""))
		}
	}
	return setAndUnset(set, unset), nil
}

// unlessThere are the fields of a new document for the $setOnInsert of an upsert: all but the id, which is
// in the filter.
func unlessThere(v any) (bson.D, error) {
	elems, err := fieldsOf(v)
	doc := make(bson.D, 0, len(elems)+1)
	for _, e := range elems {
		if name := e.Key(); name != "_id" {
			doc = append(doc, d(name, e.Value()))
		}
	}
	return doc, err
}

// setAndUnset is an update, without the part that is empty.
func setAndUnset(set, unset bson.D) bson.D {
	update := bson.D{}
	if len(set) > 0 {
		update = append(update, d("$set", set))
	}
	if len(unset) > 0 {
		update = append(update, d("$unset", unset))
	}
	return update
}

func fieldsOf(v any) ([]bson.RawElement, error) {
	doc, err := documentOf(v)
	if err != nil {
		return nil, err
	}
	return doc.Elements()
}

func documentOf(v any) (bson.Raw, error) {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(registry)
	err := enc.Encode(v)
	return buf.Bytes(), err
}

// nameOf is the element's key: what follows its type, up to a zero.
func nameOf(e bson.RawElement) []byte { return e[1 : 1+bytes.IndexByte(e[1:], 0)] }

// lookup finds the field of that key, looking from there on first; -1 = there is none.
func lookup(fields []bson.RawElement, key []byte, from int) int {
	for n := range fields {
		if i := (from + n) % len(fields); bytes.Equal(nameOf(fields[i]), key) {
			return i
		}
	}
	return -1
}
