package query

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// expression is what $group computes from a document; a zero value is missing.
type expression func(doc bson.Raw) bson.RawValue

// parseExpression knows literals, field paths ("$a.b"), $$ROOT and documents
// of those.
func parseExpression(v bson.RawValue) expression {
	s, _ := v.StringValueOK()
	switch {
	case s == "$$ROOT":
		return value.Document
	case strings.HasPrefix(s, "$$"):
		refuse("the variable " + s)
	case strings.HasPrefix(s, "$"):
		path := fieldNames(s[1:])
		return func(doc bson.Raw) bson.RawValue { return fieldPath(doc, path) }
	case v.Type == bson.TypeEmbeddedDocument:
		return parseObject(v.Value)
	case v.Type == bson.TypeArray:
		refuse("an array as an expression")
	}
	return func(bson.Raw) bson.RawValue { return v }
}

func parseObject(spec []byte) expression {
	var names []string
	var fields []expression
	for it := value.NewIter(spec); it.Next(); {
		name := string(it.Key)
		if strings.HasPrefix(name, "$") {
			refuse("the expression " + name)
		}
		check(!strings.Contains(name, "."), 40235, "FieldPath field names may not contain '.': %s", name)
		names, fields = append(names, name), append(fields, parseExpression(it.Value))
	}
	return func(doc bson.Raw) bson.RawValue {
		at, dst := value.Begin(nil)
		for i, e := range fields {
			if v := e(doc); v.Type != 0 {
				dst = value.AppendElement(dst, names[i], v)
			}
		}
		return value.Document(value.End(dst, at))
	}
}

// fieldPath is the value at path; an array on the way gives an array of what
// its documents have there.
func fieldPath(doc []byte, path []string) bson.RawValue {
	v, _ := value.Lookup(doc, path[0])
	switch {
	case len(path) == 1:
		return v
	case v.Type == bson.TypeEmbeddedDocument:
		return fieldPath(v.Value, path[1:])
	case v.Type != bson.TypeArray:
		return missing
	}
	var found []bson.RawValue
	for it := value.NewIter(v.Value); it.Next(); {
		if w := fieldPath(document(it.Value), path[1:]); w.Type != 0 {
			found = append(found, w)
		}
	}
	return value.Array(found)
}
