package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Sort is a compiled sort order.
type Sort struct {
	Fields []value.Field
}

// CompileSort checks and compiles a sort order. It is nil for an empty one.
func CompileSort(spec bson.Raw) (s *Sort, err error) {
	defer catch(&err)
	return compileSort(spec), nil
}

func compileSort(spec []byte) *Sort {
	var s Sort
	for it := value.NewIter(spec); it.Next(); {
		path := string(it.Key)
		if firstKey(it.Value) == "$meta" {
			refuse("$meta in a sort")
		}
		check(value.ClassOf(it.Value.Type) == value.ClassNumber, 15974,
			"Illegal key in $sort specification: %s: %s", path, it.Value)
		sign, ok := direction(it.Value)
		check(ok, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
		if path == "$natural" {
			refuse(path)
		}
		fieldNames(path)
		if !slices.ContainsFunc(s.Fields, func(f value.Field) bool { return f.Path == path }) {
			s.Fields = append(s.Fields, value.Field{Path: path, Descending: sign < 0})
		}
	}
	if s.Fields == nil {
		return nil
	}
	return &s
}

// fieldNames cuts and checks a path of a sort order, projection or expression.
func fieldNames(path string) []string {
	names := strings.Split(path, ".")
	for _, name := range names {
		check(name != "", 40353, "FieldPath must not end with a '.' or have an empty part: %s", path)
		check(name[0] != '$', 16410, "FieldPath field names may not start with '$' (%s). Consider using $getField or $setField.", path)
	}
	return names
}

// Key returns doc's sort key: bytes.Compare of two keys orders their
// documents. An array counts by its least element in the direction of the
// sort. Two arrays that are not one within the other are refused (BadValue).
func (s *Sort) Key(doc bson.Raw) ([]byte, error) {
	keys, _, err := value.IndexKeys(doc, s.Fields, false)
	switch {
	case mongoerr.Code(err) == mongoerr.CannotIndexParallelArrays:
		return nil, mongoerr.New(mongoerr.BadValue,
			"Executor error during find command: cannot sort with keys that are parallel arrays")
	case err != nil:
		return nil, err
	}
	return keys[0], nil
}
