package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// Sort is a compiled sort order.
type Sort struct {
	Fields []value.Field
}

// CompileSort checks and compiles a sort order. It is nil for an empty one.
func CompileSort(spec bson.Raw) (*Sort, error) {
	var s Sort
	for it := value.NewIter(spec); it.Next(); {
		path := string(it.Key)
		if it.Value.Type == bson.TypeEmbeddedDocument {
			if _, ok := value.Lookup(it.Value.Value, "$meta"); ok {
				return nil, mongoerr.NotImplemented("$meta in a sort")
			}
		}
		if value.ClassOf(it.Value.Type) != value.ClassNumber {
			return nil, mongoerr.New(15974, "Illegal key in $sort specification: %s: %s", path, it.Value)
		}
		sign, ok := direction(it.Value)
		if !ok {
			return nil, mongoerr.New(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
		}
		if path == "$natural" {
			return nil, mongoerr.NotImplemented("$natural")
		}
		for _, p := range cut(path) {
			switch {
			case p.name == "":
				return nil, mongoerr.New(40353, "FieldPath must not end with a '.' or have an empty part: %s", path)
			case p.name[0] == '$':
				return nil, mongoerr.New(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
			}
		}
		if !slices.ContainsFunc(s.Fields, func(f value.Field) bool { return f.Path == path }) {
			s.Fields = append(s.Fields, value.Field{Path: path, Descending: sign < 0})
		}
	}
	if s.Fields == nil {
		return nil, nil
	}
	return &s, nil
}

// Key returns doc's sort key: bytes.Compare of two keys orders their
// documents. An array counts by its least element in the direction of the
// sort. Two arrays that are not one within the other are refused (BadValue).
func (s *Sort) Key(doc bson.Raw) ([]byte, error) {
	keys, _, err := value.IndexKeys(doc, s.Fields, false)
	if mongoerr.Code(err) == mongoerr.CannotIndexParallelArrays {
		return nil, badValue("Executor error during find command: cannot sort with keys that are parallel arrays")
	}
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}
