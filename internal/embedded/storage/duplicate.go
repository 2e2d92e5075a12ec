package storage

import (
	"bytes"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// duplicate is the answer to a write of doc that would store a second key in a
// unique index.
func duplicate(c *Collection, x *Index, key []byte, doc bson.Raw) error {
	at, values := value.Begin(nil)
	for _, f := range x.Spec.Fields {
		shown := bson.RawValue{Type: bson.TypeNull}
		own, _ := query.Distinct(slices.Values([]bson.Raw{doc}), f.Path, bson.RawValue{})
		part := key[:value.KeyLen(string(key), f.Descending)]
		for _, v := range own {
			// Of an array, the element that clashed.
			if bytes.Equal(value.AppendKey(nil, v, f.Descending), part) {
				shown = v
				break
			}
		}
		key = key[len(part):]
		values = value.AppendElement(values, f.Path, shown)
	}
	values = value.End(values, at)
	text, err := bson.MarshalExtJSON(bson.Raw(values), false, false)
	if err != nil {
		text = []byte(x.Spec.Key.String())
	}
	e := mongoerr.New(mongoerr.DuplicateKey, "E11000 duplicate key error collection: %s index: %s dup key: %s",
		c.Namespace, x.Spec.Name, text)
	at, details := value.Begin(nil)
	details = value.AppendElement(details, "keyPattern", value.Document(x.Spec.Key))
	e.Details = value.End(value.AppendElement(details, "keyValue", value.Document(values)), at)
	return e
}
