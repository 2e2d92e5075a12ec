package query

import (
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// each makes a stage of a function that turns one document into any number, and
// says whether it wants more.
func each(docs Docs, do func(doc bson.Raw, emit func(bson.Raw) bool) (more bool)) Docs {
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

type matchStage struct{ filter *Filter }

func parseMatchStage(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15959, "the match filter must be an expression in an object")
	return matchStage{compileFilter(v.Value)}
}

func (s matchStage) run(docs Docs) Docs {
	return each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) bool {
		return !s.filter.Match(doc) || emit(doc)
	})
}

type projectStage struct{ projection *Projection }

func parseProjectStage(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15969, "$project specification must be an object")
	check(len(v.Value) > 5, 51272,
		"Invalid $project :: caused by :: projection specification must have at least one field")
	return projectStage{compileProjection(v.Value, false)}
}

func (s projectStage) run(docs Docs) Docs {
	return each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) bool {
		return emit(s.projection.Apply(doc))
	})
}

// sortStage is $sort, with the $limit that follows it.
type sortStage struct {
	sort  *Sort
	limit int // 0: none
}

func parseSortStage(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15973, "the $sort key specification must be an object")
	s := compileSort(v.Value)
	check(s != nil, 15976, "$sort stage must have at least one sort key")
	return sortStage{sort: s}
}

func (s sortStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		all, err := Top(s.sort, docs, func(doc bson.Raw) bson.Raw { return doc }, s.limit)
		if err != nil {
			yield(nil, err)
		}
		for _, doc := range all {
			if !yield(doc, nil) {
				return
			}
		}
	}
}

type limitStage int64

func parseLimitStage(v bson.RawValue) stage {
	n, ok := wholeNumber(v)
	check(ok && n >= 0, 5107201, "invalid argument to $limit stage: Expected a non-negative number in: $limit: %s", v)
	check(n > 0, 15958, "the limit must be positive")
	return limitStage(n)
}

func (s limitStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		n := limitStage(0)
		each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) bool {
			n++
			return emit(doc) && n < s
		})(yield)
	}
}

type skipStage int64

func parseSkipStage(v bson.RawValue) stage {
	n, ok := wholeNumber(v)
	check(ok && n >= 0, 5107200, "invalid argument to $skip stage: Expected a non-negative number in: $skip: %s", v)
	return skipStage(n)
}

func (s skipStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		n := skipStage(0)
		each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) bool {
			n++
			return n <= s || emit(doc)
		})(yield)
	}
}

type countStage string

func parseCountStage(v bson.RawValue) stage {
	name, ok := v.StringValueOK()
	check(ok, 40156, "the count field must be a non-empty string")
	check(name != "", 40157, "the count field must be a non-empty string")
	check(name[0] != '$', 40158, "the count field cannot be a $-prefixed path")
	check(!strings.Contains(name, "\x00"), 40159, "the count field cannot contain a null byte")
	check(!strings.Contains(name, "."), 40160, "the count field cannot contain '.'")
	return countStage(name)
}

func (s countStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		n := int64(0)
		for _, err := range docs {
			if err != nil {
				yield(nil, err)
				return
			}
			n++
		}
		if n > 0 {
			at, dst := value.Begin(nil)
			yield(value.End(value.AppendElement(dst, string(s), intOrLong(n)), at), nil)
		}
	}
}

func intOrLong(n int64) bson.RawValue {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		return value.Int32(int32(n))
	}
	return value.Int64(n)
}

type unwindStage struct {
	path     []string
	preserve bool // keep documents with nothing to unwind
}

func parseUnwindStage(v bson.RawValue) stage {
	var s unwindStage
	path, ok := v.StringValueOK()
	check(ok || v.Type == bson.TypeEmbeddedDocument, 15981,
		"expected either a string or an object as specification for $unwind stage, got %s", typeName(v.Type))
	for it := value.NewIter(document(v)); it.Next(); {
		switch got := typeName(it.Value.Type); string(it.Key) {
		case "path":
			path, ok = it.Value.StringValueOK()
			check(ok, 28808, "expected a string as the path for $unwind stage, got %s", got)
		case "preserveNullAndEmptyArrays":
			s.preserve, ok = it.Value.BooleanOK()
			check(ok, 28809, "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got %s", got)
		case "includeArrayIndex":
			refuse("includeArrayIndex of $unwind")
		default:
			fail(28811, "unrecognized option to $unwind stage: %s", it.Key)
		}
	}
	check(path != "", 28812, "no path specified to $unwind stage")
	check(path[0] == '$', 28818, "path option to $unwind stage should be prefixed with a '$': %s", path)
	s.path = strings.Split(path[1:], ".")
	return s
}

func (s unwindStage) run(docs Docs) Docs {
	return each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) bool {
		v := value.Document(doc)
		for _, name := range s.path {
			v, _ = value.Lookup(document(v), name)
		}
		switch v.Type {
		case 0, bson.TypeNull, bson.TypeUndefined:
			return !s.preserve || emit(doc)
		case bson.TypeArray:
		default:
			return emit(doc)
		}
		elems := value.Elements(v.Value)
		if len(elems) == 0 {
			return !s.preserve || emit(replaceAt(doc, s.path, missing))
		}
		for _, elem := range elems {
			if !emit(replaceAt(doc, s.path, elem)) {
				return false
			}
		}
		return true
	})
}

// replaceAt puts v in the place of what is at path; a zero v removes it.
func replaceAt(doc []byte, path []string, v bson.RawValue) bson.Raw {
	at, dst := value.Begin(make([]byte, 0, len(doc)+len(v.Value)))
	for it := value.NewIter(doc); it.Next(); {
		switch {
		case string(it.Key) != path[0]:
			dst = append(dst, it.Element()...)
		case len(path) > 1:
			dst = value.AppendElement(dst, path[0], value.Document(replaceAt(it.Value.Value, path[1:], v)))
		case v.Type != 0:
			dst = value.AppendElement(dst, path[0], v)
		}
	}
	return value.End(dst, at)
}
