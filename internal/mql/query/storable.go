package query

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// CheckStorable refuses a document with that _id that MongoDB does not insert, whatever its
// size.
func CheckStorable(doc bson.Raw, id bson.RawValue) error {
	switch id.Type {
	case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
		return mongoerr.New(mongoerr.InvalidIDField, "The '_id' value cannot be of type %s", id.Type)
	}
	if err := checkIDFields(id); err != nil {
		return err
	}
	if err := CheckDepth(doc); err != nil {
		return err
	}
	ids := 0
	for it := value.NewIter(doc); it.Next(); {
		switch name := string(it.Key); {
		case name == "_id":
			if ids++; ids > 1 {
				return mongoerr.New(mongoerr.BadValue, "can't have multiple _id fields in one document")
			}
		case strings.HasPrefix(name, "$"): // an error before MongoDB 5.0
			return mongoerr.NotImplemented("a field name starting with $ (" + name + ") in a document")
		}
	}
	return nil
}

// checkIDFields refuses field names at any depth of an _id that operators begin with.
func checkIDFields(v bson.RawValue) error {
	if !value.IsObject(v) {
		return nil
	}
	for it := value.NewIter(v.Value); it.Next(); {
		name := string(it.Key)
		if strings.HasPrefix(name, "$") && name != "$ref" && name != "$id" && name != "$db" {
			return mongoerr.New(mongoerr.DollarPrefixedFieldName,
				"_id fields may not contain '$'-prefixed fields: %s is not valid for storage.", name)
		}
		if err := checkIDFields(it.Value); err != nil {
			return err
		}
	}
	return nil
}

// CheckDepth refuses a document that nests deeper than MongoDB stores.
func CheckDepth(doc bson.Raw) error {
	if depth(value.Document(doc)) > maxDepth {
		return mongoerr.New(mongoerr.Overflow, "cannot store a document that exceeds %d levels of nesting", maxDepth)
	}
	return nil
}

func depth(v bson.RawValue) int {
	deepest := 0
	if !value.IsObject(v) {
		return deepest
	}
	for it := value.NewIter(v.Value); it.Next(); {
		deepest = max(deepest, depth(it.Value))
	}
	return deepest + 1
}
