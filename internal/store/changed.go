package store

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

var registry = model.Registry()

// changed is the update that turns the document of before into that of after, by their
// fields. Fields that neither knows are never touched.
func changed(before, after any) (bson.D, error) {
	old, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	now, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	var set, unset bson.D
	for _, e := range now {
		if b, ok := lookup(old, e.Key()); !ok || b.Type != e.Value().Type || !bytes.Equal(b.Value, e.Value().Value) {
			set = append(set, d(e.Key(), e.Value()))
		}
	}
	for _, e := range old {
		if _, ok := lookup(now, e.Key()); !ok {
			unset = append(unset, d(e.Key(), ""))
		}
	}
	update := bson.D{}
	if len(set) > 0 {
		update = append(update, d("$set", set))
	}
	if len(unset) > 0 {
		update = append(update, d("$unset", unset))
	}
	return update, nil
}

func fieldsOf(v any) ([]bson.RawElement, error) {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(registry)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bson.Raw(buf.Bytes()).Elements()
}

func lookup(fields []bson.RawElement, key string) (bson.RawValue, bool) {
	for _, e := range fields {
		if e.Key() == key {
			return e.Value(), true
		}
	}
	return bson.RawValue{}, false
}
