package storage

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// maxIndexFields is MongoDB's limit of fields in one index; it also fits the
// multikey bits.
const maxIndexFields = 32

// maxIndexes is MongoDB's limit of indexes in a collection.
const maxIndexes = 64

// IndexSpec is the definition of an index. It does not change.
type IndexSpec struct {
	Name        string
	Fields      []value.Field
	Key         bson.Raw // as the user wrote it: {a: 1, b: -1}
	Unique      bool
	Sparse      bool
	Partial     *query.Filter // nil: every document
	PartialRaw  bson.Raw
	ExpireAfter int64 // seconds, -1: none

	tops [][]byte // the top-level fields that keys and membership depend on
}

var idSpec = &IndexSpec{
	Name: "_id_", Fields: []value.Field{{Path: "_id"}}, Unique: true, ExpireAfter: -1,
	Key: mustRaw(bson.D{{Key: "_id", Value: int32(1)}}), tops: [][]byte{[]byte("_id")},
}

func mustRaw(v any) bson.Raw {
	b, err := bson.Marshal(v)
	if err != nil {
		panic(err) // only for literals of this package
	}
	return b
}

// ParseIndexSpec reads one entry of createIndexes. What MongoDB has and this
// server has not (text, 2d, hashed, wildcard, collation) is refused.
func ParseIndexSpec(raw bson.Raw) (*IndexSpec, error) {
	s := &IndexSpec{ExpireAfter: -1}
	for it := value.NewIter(raw); it.Next(); {
		if err := s.option(string(it.Key), it.Value); err != nil {
			return nil, err
		}
	}
	if s.Key == nil {
		return nil, mongoerr.New(mongoerr.FailedToParse, "The 'key' field is a required property of an index specification")
	}
	if s.Name == "" {
		return nil, mongoerr.New(mongoerr.FailedToParse, "The 'name' field is a required property of an index specification")
	}
	if s.Sparse && s.Partial != nil {
		return nil, mongoerr.New(mongoerr.CannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options")
	}
	if s.ExpireAfter >= 0 && (len(s.Fields) != 1 || s.Fields[0].Path == "_id") {
		return nil, mongoerr.New(mongoerr.CannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL; _id cannot have one")
	}
	for _, f := range s.Fields {
		s.tops = append(s.tops, []byte(topField(f.Path)))
	}
	if s.Partial != nil {
		for path := range s.Partial.Paths {
			s.tops = append(s.tops, []byte(topField(path)))
		}
	}
	if len(s.Fields) == 1 && s.Fields[0].Path == "_id" {
		if s.Fields[0] != idSpec.Fields[0] {
			return nil, mongoerr.New(mongoerr.BadValue, "The field 'key' for an _id index must be {_id: 1}")
		}
		if s.Unique || s.Sparse || s.Partial != nil {
			return nil, mongoerr.New(mongoerr.InvalidIndexOption, "'unique', 'sparse' and 'partialFilterExpression' are not valid for an _id index specification")
		}
		return idSpec, nil
	}
	return s, nil
}

func (s *IndexSpec) option(name string, v bson.RawValue) error {
	var err error
	switch name {
	case "key":
		return s.parseKey(v)
	case "name":
		s.Name, _ = v.StringValueOK()
	case "unique":
		s.Unique, err = truth(name, v)
	case "sparse":
		s.Sparse, err = truth(name, v)
	case "partialFilterExpression":
		if v.Type != bson.TypeEmbeddedDocument {
			return mongoerr.New(mongoerr.TypeMismatch, "The field 'partialFilterExpression' must be an object")
		}
		s.PartialRaw = slices.Clone(bson.Raw(v.Value))
		s.Partial, err = query.CompileIndexFilter(s.PartialRaw)
	case "expireAfterSeconds":
		n, ok := value.AsInteger(v)
		if !ok || n < 0 || n > math.MaxInt32 {
			return mongoerr.New(mongoerr.CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be within an acceptable range")
		}
		s.ExpireAfter = n
	case "v":
		if n, ok := value.AsInteger(v); !ok || n != 2 {
			return mongoerr.NotImplemented("an index version other than 2")
		}
	case "hidden":
		var on bool
		if on, err = truth(name, v); on {
			return mongoerr.NotImplemented("a hidden index")
		}
	case "background", "ns", "dropDups": // ignored by MongoDB too
	case "collation":
		doc, _ := v.DocumentOK()
		locale, _ := value.Lookup(doc, "locale")
		if name, _ := locale.StringValueOK(); name != "simple" {
			return mongoerr.NotImplemented("collation")
		}
	case "weights", "default_language", "language_override", "textIndexVersion", "2dsphereIndexVersion",
		"bits", "min", "max", "bucketSize", "storageEngine", "wildcardProjection":
		return mongoerr.NotImplemented("the index option " + name)
	default:
		return mongoerr.New(mongoerr.InvalidIndexOption, "The field '%s' is not valid for an index specification", name)
	}
	return err
}

func (s *IndexSpec) parseKey(v bson.RawValue) error {
	if v.Type != bson.TypeEmbeddedDocument {
		return mongoerr.New(mongoerr.TypeMismatch, "The field 'key' must be an object")
	}
	if s.Key != nil {
		return mongoerr.New(mongoerr.FailedToParse, "The field 'key' appears twice in an index specification")
	}
	s.Key = slices.Clone(bson.Raw(v.Value))
	for it := value.NewIter(s.Key); it.Next(); {
		path := string(it.Key)
		if kind, ok := it.Value.StringValueOK(); ok {
			switch kind {
			case "text", "2d", "2dsphere", "hashed", "geoHaystack":
				return mongoerr.NotImplemented("a " + kind + " index")
			}
			return mongoerr.New(mongoerr.CannotCreateIndex, "Unknown index plugin '%s'", kind)
		}
		if value.ClassOf(it.Value.Type) != value.ClassNumber {
			return mongoerr.New(mongoerr.CannotCreateIndex, "Values in v:2 index key pattern cannot be of type %s. Only numbers > 0, numbers < 0, and strings are allowed.", it.Value.Type)
		}
		direction := value.AsDouble(it.Value)
		if direction == 0 || direction != direction {
			return mongoerr.New(mongoerr.CannotCreateIndex, "Values in the index key pattern cannot be 0.")
		}
		if path == "$**" || strings.HasSuffix(path, ".$**") {
			return mongoerr.NotImplemented("a wildcard index")
		}
		for part := range strings.SplitSeq(path, ".") {
			if part == "" {
				return mongoerr.New(mongoerr.CannotCreateIndex, "Index keys cannot contain an empty field.")
			}
			if part[0] == '$' {
				return mongoerr.New(mongoerr.CannotCreateIndex, "Index key contains an illegal field name: field name starts with '$'.")
			}
		}
		if slices.ContainsFunc(s.Fields, func(f value.Field) bool { return f.Path == path }) {
			return mongoerr.New(mongoerr.CannotCreateIndex, "the index key has the field %s twice", path)
		}
		s.Fields = append(s.Fields, value.Field{Path: path, Descending: direction < 0})
	}
	if len(s.Fields) == 0 || len(s.Fields) > maxIndexFields {
		return mongoerr.New(mongoerr.CannotCreateIndex, "Index keys cannot be empty, and have at most %d fields.", maxIndexFields)
	}
	return nil
}

func truth(name string, v bson.RawValue) (bool, error) {
	switch {
	case v.Type == bson.TypeBoolean:
		return v.Boolean(), nil
	case value.ClassOf(v.Type) == value.ClassNumber:
		return value.AsDouble(v) != 0, nil
	}
	return false, mongoerr.New(mongoerr.TypeMismatch, "The field '%s' has value of the wrong type, expected a boolean", name)
}

// Raw is the definition as listIndexes gives it.
func (s *IndexSpec) Raw() bson.Raw {
	d := bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: s.Key}, {Key: "name", Value: s.Name}}
	if s.Unique && s != idSpec {
		d = append(d, bson.E{Key: "unique", Value: true})
	}
	if s.Sparse {
		d = append(d, bson.E{Key: "sparse", Value: true})
	}
	if s.ExpireAfter >= 0 {
		d = append(d, bson.E{Key: "expireAfterSeconds", Value: int32(s.ExpireAfter)})
	}
	if s.Partial != nil {
		d = append(d, bson.E{Key: "partialFilterExpression", Value: s.PartialRaw})
	}
	return mustRaw(d)
}

// SameKey reports whether both index the same fields the same way.
func (s *IndexSpec) SameKey(o *IndexSpec) bool { return slices.Equal(s.Fields, o.Fields) }

// same reports whether both are the same definition; ttl tells whether their
// expiry counts.
func (s *IndexSpec) same(o *IndexSpec, ttl bool) bool {
	return s.SameKey(o) && s.Unique == o.Unique && s.Sparse == o.Sparse &&
		bytes.Equal(s.PartialRaw, o.PartialRaw) && (!ttl || s.ExpireAfter == o.ExpireAfter)
}

// Keys returns the keys of doc, none when the index does not hold it, and the
// fields that met an array.
func (s *IndexSpec) Keys(doc bson.Raw) (keys [][]byte, multikey uint64, err error) {
	if s.Partial != nil && !s.Partial.Match(doc) {
		return nil, 0, nil
	}
	if s == idSpec {
		id, _ := value.Lookup(doc, "_id")
		return [][]byte{value.AppendKey(nil, id, false)}, 0, nil
	}
	keys, many, err := value.IndexKeys(doc, s.Fields, s.Sparse)
	if err != nil || !many {
		return keys, 0, err
	}
	for i, f := range s.Fields {
		if value.MeetsArray(doc, f.Path) {
			multikey |= 1 << i
		}
	}
	return keys, multikey, nil
}

// touchedBy reports whether a change of these top-level fields can change the
// document's keys or whether the index holds it.
func (s *IndexSpec) touchedBy(changed [][]byte) bool {
	for _, f := range changed {
		for _, top := range s.tops {
			if bytes.Equal(f, top) {
				return true
			}
		}
	}
	return false
}

func topField(path string) string {
	head, _, _ := strings.Cut(path, ".")
	return head
}
