package store

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
)

var registry = codec.Registry()

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
