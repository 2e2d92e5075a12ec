package query

import (
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// each makes a stage of a function that turns one document into any number.
// stop ends the stream.
func each(docs Docs, do func(doc bson.Raw, emit func(bson.Raw) bool) (more bool, err error)) Docs {
	return func(yield func(bson.Raw, error) bool) {
		emit := func(d bson.Raw) bool { return yield(d, nil) }
		for doc, err := range docs {
			if err != nil {
				yield(nil, err)
				return
			}
			more, err := do(doc, emit)
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

type matchStage struct{ filter *Filter }

func parseMatchStage(v bson.RawValue) (stage, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(15959, "the match filter must be an expression in an object")
	}
	f, err := CompileFilter(v.Value)
	return matchStage{f}, err
}

func (s matchStage) run(docs Docs) Docs {
	return each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) (bool, error) {
		return !s.filter.Match(doc) || emit(doc), nil
	})
}

type projectStage struct{ projection *Projection }

func parseProjectStage(v bson.RawValue) (stage, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(15969, "$project specification must be an object")
	}
	if first := value.NewIter(v.Value); !first.Next() {
		return nil, mongoerr.New(51272, "Invalid $project :: caused by :: projection specification must have at least one field")
	}
	var c projectionParser
	p, err := c.parse(v.Value)
	return projectStage{p}, err
}

func (s projectStage) run(docs Docs) Docs {
	return each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) (bool, error) {
		return emit(s.projection.Apply(doc)), nil
	})
}

// sortStage is $sort, with the $limit that follows it.
type sortStage struct {
	sort  *Sort
	limit int // 0: none
}

func parseSortStage(v bson.RawValue) (stage, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(15973, "the $sort key specification must be an object")
	}
	s, err := CompileSort(v.Value)
	if err == nil && s == nil {
		err = mongoerr.New(15976, "$sort stage must have at least one sort key")
	}
	return sortStage{sort: s}, err
}

func (s sortStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		all, err := Top(s.sort, docs, func(doc bson.Raw) bson.Raw { return doc }, s.limit)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, doc := range all {
			if !yield(doc, nil) {
				return
			}
		}
	}
}

type limitStage int64

func parseLimitStage(v bson.RawValue) (stage, error) {
	n, ok := wholeNumber(v)
	switch {
	case !ok || n < 0:
		return nil, mongoerr.New(5107201, "invalid argument to $limit stage: Expected a non-negative number in: $limit: %s", v)
	case n == 0:
		return nil, mongoerr.New(15958, "the limit must be positive")
	}
	return limitStage(n), nil
}

func (s limitStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		n := int64(0)
		each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) (bool, error) {
			n++
			return emit(doc) && n < int64(s), nil
		})(yield)
	}
}

type skipStage int64

func parseSkipStage(v bson.RawValue) (stage, error) {
	n, ok := wholeNumber(v)
	if !ok || n < 0 {
		return nil, mongoerr.New(5107200, "invalid argument to $skip stage: Expected a non-negative number in: $skip: %s", v)
	}
	return skipStage(n), nil
}

func (s skipStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		n := int64(0)
		each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) (bool, error) {
			n++
			return n <= int64(s) || emit(doc), nil
		})(yield)
	}
}

type countStage string

func parseCountStage(v bson.RawValue) (stage, error) {
	name, ok := v.StringValueOK()
	switch {
	case !ok:
		return nil, mongoerr.New(40156, "the count field must be a non-empty string")
	case name == "":
		return nil, mongoerr.New(40157, "the count field must be a non-empty string")
	case name[0] == '$':
		return nil, mongoerr.New(40158, "the count field cannot be a $-prefixed path")
	case strings.IndexByte(name, 0) >= 0:
		return nil, mongoerr.New(40159, "the count field cannot contain a null byte")
	case strings.IndexByte(name, '.') >= 0:
		return nil, mongoerr.New(40160, "the count field cannot contain '.'")
	}
	return countStage(name), nil
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

func parseUnwindStage(v bson.RawValue) (stage, error) {
	var s unwindStage
	path, ok := v.StringValueOK()
	if v.Type == bson.TypeEmbeddedDocument {
		for it := value.NewIter(v.Value); it.Next(); {
			switch string(it.Key) {
			case "path":
				path, ok = it.Value.StringValueOK()
				if !ok {
					return nil, mongoerr.New(28808, "expected a string as the path for $unwind stage, got %s", typeName(it.Value.Type))
				}
			case "preserveNullAndEmptyArrays":
				if it.Value.Type != bson.TypeBoolean {
					return nil, mongoerr.New(28809, "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got %s", typeName(it.Value.Type))
				}
				s.preserve = it.Value.Boolean()
			case "includeArrayIndex":
				return nil, mongoerr.NotImplemented("includeArrayIndex of $unwind")
			default:
				return nil, mongoerr.New(28811, "unrecognized option to $unwind stage: %s", it.Key)
			}
		}
	} else if !ok {
		return nil, mongoerr.New(15981, "expected either a string or an object as specification for $unwind stage, got %s", typeName(v.Type))
	}
	switch {
	case path == "":
		return nil, mongoerr.New(28812, "no path specified to $unwind stage")
	case path[0] != '$':
		return nil, mongoerr.New(28818, "path option to $unwind stage should be prefixed with a '$': %s", path)
	}
	s.path = strings.Split(path[1:], ".")
	return s, nil
}

func (s unwindStage) run(docs Docs) Docs {
	return each(docs, func(doc bson.Raw, emit func(bson.Raw) bool) (bool, error) {
		v := value.Document(doc)
		for _, name := range s.path {
			if v.Type != bson.TypeEmbeddedDocument {
				v = missing
				break
			}
			v, _ = value.Lookup(v.Value, name)
		}
		switch v.Type {
		case bson.TypeArray:
		case 0, bson.TypeNull, bson.TypeUndefined:
			return !s.preserve || emit(doc), nil
		default:
			return emit(doc), nil
		}
		elems := values(v.Value)
		if len(elems) == 0 {
			return !s.preserve || emit(replaceAt(doc, s.path, missing)), nil
		}
		for _, elem := range elems {
			if !emit(replaceAt(doc, s.path, elem)) {
				return false, nil
			}
		}
		return true, nil
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
