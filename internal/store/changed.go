package store

import (
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// changed is the update that turns the document of before into that of after, by their
// fields. Fields that neither knows are never touched. also are more fields that it sets.
func changed[T any](before, after *T, also ...bson.E) (bson.D, error) {
	set, unset, err := codec.Changes(before, after)
	if err != nil {
		return nil, err
	}
	if len(also) > 0 {
		more, err := bson.Marshal(bson.D(also))
		if err != nil {
			return nil, err
		}
		start, doc := bsoncore.AppendDocumentStart(nil)
		if set != nil {
			doc = append(doc, set[4:len(set)-1]...)
		}
		set, _ = bsoncore.AppendDocumentEnd(append(doc, more[4:len(more)-1]...), start) // which start begins
	}
	update := bson.D{}
	if set != nil {
		update = append(update, d("$set", set))
	}
	if unset != nil {
		update = append(update, d("$unset", unset))
	}
	return update, nil
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
	for t, n := reflect.TypeFor[T](), 0; n < t.NumField(); n++ {
		name, _, _ := strings.Cut(t.Field(n).Tag.Get("bson"), ",")
		is := len(says) > 0 && says[0].Key() == name // the document has its fields in the order of the struct
		switch {
		case slices.Contains(stay, name):
		case is:
			set = append(set, d(name, says[0].Value()))
		default:
			unset = append(unset, d(name, ""))
		}
		if is {
			says = says[1:]
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

// setOrUnset adds a field that there is to what an update sets, and any other to what it unsets.
func setOrUnset(set, unset *bson.D, there bool, field string, value any) {
	if there {
		*set = append(*set, d(field, value))
	} else {
		*unset = append(*unset, d(field, ""))
	}
}

func fieldsOf(v any) ([]bson.RawElement, error) {
	doc, err := codec.Encode(v)
	if err != nil {
		return nil, err
	}
	return doc.Elements()
}

// docsOf are the documents of structs.
func docsOf[T any](list []T) (bson.A, error) {
	out := make(bson.A, len(list))
	for i := range list {
		doc, err := codec.Encode(&list[i])
		if err != nil {
			return nil, err
		}
		out[i] = doc
	}
	return out, nil
}
