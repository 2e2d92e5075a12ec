package query

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// stages parse the argument of a stage.
var stages = map[string]func(v bson.RawValue) stage{
	"$match": parseMatch, "$project": parseProject, "$sort": parseSort, "$limit": parseLimit, "$skip": parseSkip,
	"$count": parseCount, "$unwind": parseUnwind, "$group": parseGroup, "$replaceWith": parseReplaceWith,
}

// emit hands a document on and reports whether more are wanted.
type emit func(doc bson.Raw) (more bool)

// each makes a stage's run of a function that turns one document into any
// number, and says whether it wants more.
func each(do func(doc bson.Raw, emit emit) (more bool)) func(Docs) Docs {
	return func(docs Docs) Docs {
		return func(yield func(bson.Raw, error) bool) {
			for doc, err := range docs {
				if err != nil {
					yield(nil, err)
					return
				}
				if !do(doc, func(d bson.Raw) bool { return yield(d, nil) }) {
					return
				}
			}
		}
	}
}

// all makes a stage's run of a function that needs all documents at once.
func all(do func(docs Docs) (iter.Seq[bson.Raw], error)) func(Docs) Docs {
	return func(docs Docs) Docs {
		return func(yield func(bson.Raw, error) bool) {
			out, err := do(docs)
			if err != nil {
				yield(nil, err)
				return
			}
			for doc := range out {
				if !yield(doc, nil) {
					return
				}
			}
		}
	}
}

func parseMatch(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15959, "the match filter must be an expression in an object")
	f := compileFilter(v.Value)
	return stage{filter: f, run: each(func(doc bson.Raw, emit emit) bool { return !f.Match(doc) || emit(doc) })}
}

func parseProject(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15969, "$project specification must be an object")
	check(len(v.Value) > 5, 51272, "$project must have at least one field")
	p := compileProjection(v.Value, false)
	return stage{run: each(func(doc bson.Raw, emit emit) bool { return emit(p.Apply(doc)) })}
}

func parseReplaceWith(v bson.RawValue) stage {
	e := parseExpression(v)
	return stage{run: func(docs Docs) Docs {
		return func(yield func(bson.Raw, error) bool) {
			for doc, err := range docs {
				if err == nil {
					doc, err = replacement(e(doc))
				}
				if !yield(doc, err) || err != nil {
					return
				}
			}
		}
	}}
}

// replacement is the document that takes another's place.
func replacement(v bson.RawValue) (doc bson.Raw, err error) {
	defer catch(&err)
	check(v.Type == bson.TypeEmbeddedDocument, 40228, "'replacement document' expression must evaluate to an object, but resulting value was: %s", typeName(v.Type))
	return bytes.Clone(v.Value), nil // not a part of the other's memory
}

func parseSort(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15973, "the $sort key specification must be an object")
	s := compileSort(v.Value)
	check(s != nil, 15976, "$sort stage must have at least one sort key")
	return stage{sort: s, holds: true, run: s.first(0)}
}

// first runs a $sort of which only n documents are taken, 0 for all.
func (s *Sort) first(n int) func(Docs) Docs {
	return all(func(docs Docs) (iter.Seq[bson.Raw], error) {
		top, err := Top(s, docs, func(doc bson.Raw) bson.Raw { return doc }, n)
		return slices.Values(top), err
	})
}

func parseLimit(v bson.RawValue) stage {
	limit, ok := wholeNumber(v)
	check(ok && limit >= 0, 5107201, "invalid argument to $limit stage: Expected a non-negative number in: %s", v)
	check(limit > 0, 15958, "the limit must be positive")
	return stage{limit: limit, run: func(docs Docs) Docs {
		n := int64(0)
		return each(func(doc bson.Raw, emit emit) bool {
			n++
			return emit(doc) && n < limit
		})(docs)
	}}
}

func parseSkip(v bson.RawValue) stage {
	skip, ok := wholeNumber(v)
	check(ok && skip >= 0, 5107200, "invalid argument to $skip stage: Expected a non-negative number in: %s", v)
	return stage{run: func(docs Docs) Docs {
		n := int64(0)
		return each(func(doc bson.Raw, emit emit) bool {
			n++
			return n <= skip || emit(doc)
		})(docs)
	}}
}

func parseCount(v bson.RawValue) stage {
	name, ok := v.StringValueOK()
	check(ok, 40156, "the count field must be a non-empty string")
	check(name != "", 40157, "the count field must be a non-empty string")
	check(name[0] != '$', 40158, "the count field cannot be a $-prefixed path")
	check(!strings.Contains(name, "\x00"), 40159, "the count field cannot contain a null byte")
	check(!strings.Contains(name, "."), 40160, "the count field cannot contain '.'")
	return stage{run: all(func(docs Docs) (iter.Seq[bson.Raw], error) {
		n := int64(0)
		for _, err := range docs {
			if err != nil {
				return nil, err
			}
			n++
		}
		at, dst := value.Begin(nil)
		out := []bson.Raw{value.End(value.AppendElement(dst, name, intOrLong(n)), at)}
		return slices.Values(out[:min(n, 1)]), nil
	})}
}

func intOrLong(n int64) bson.RawValue {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		return value.Int32(int32(n))
	}
	return value.Int64(n)
}

func parseUnwind(v bson.RawValue) stage {
	preserve := false // keep documents with nothing to unwind
	path, ok := v.StringValueOK()
	check(ok || v.Type == bson.TypeEmbeddedDocument, 15981,
		"expected either a string or an object as specification for $unwind stage, got %s", typeName(v.Type))
	for it := value.NewIter(document(v)); it.Next(); {
		switch got := typeName(it.Value.Type); string(it.Key) {
		case "path":
			path, ok = it.Value.StringValueOK()
			check(ok, 28808, "expected a string as the path for $unwind stage, got %s", got)
		case "preserveNullAndEmptyArrays":
			preserve, ok = it.Value.BooleanOK()
			check(ok, 28809, "expected a boolean for preserveNullAndEmptyArrays of $unwind, got %s", got)
		case "includeArrayIndex":
			refuse("includeArrayIndex of $unwind")
		default:
			fail(28811, "unrecognized option to $unwind stage: %s", it.Key)
		}
	}
	check(path != "", 28812, "no path specified to $unwind stage")
	check(path[0] == '$', 28818, "path option to $unwind stage should be prefixed with a '$': %s", path)
	names := fieldNames(path[1:])
	return stage{run: each(func(doc bson.Raw, emit emit) bool {
		v := value.Document(doc)
		for _, name := range names {
			v, _ = value.Lookup(document(v), name)
		}
		switch v.Type {
		case 0, bson.TypeNull, bson.TypeUndefined:
			return !preserve || emit(doc)
		case bson.TypeArray:
		default:
			return emit(doc)
		}
		elems := value.Elements(v.Value)
		if len(elems) == 0 && preserve {
			return emit(replaceAt(doc, names, v, missing))
		}
		for _, elem := range elems {
			if !emit(replaceAt(doc, names, v, elem)) {
				return false
			}
		}
		return true
	})}
}

// replaceAt puts v in the place of old, which is at path; a zero v removes it.
func replaceAt(doc []byte, path []string, old, v bson.RawValue) bson.Raw {
	at, dst := value.Begin(make([]byte, 0, len(doc)+len(v.Value)-len(old.Value)))
	for it := value.NewIter(doc); it.Next(); {
		switch {
		case string(it.Key) != path[0]:
			dst = append(dst, it.Element()...)
		case len(path) > 1:
			dst = value.AppendElement(dst, path[0], value.Document(replaceAt(it.Value.Value, path[1:], old, v)))
		case v.Type != 0:
			dst = value.AppendElement(dst, path[0], v)
		}
	}
	return value.End(dst, at)
}
