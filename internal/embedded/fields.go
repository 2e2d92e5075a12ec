package embedded

import (
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// fields are those of a command or of one of its statements. Whatever is wrong
// with one is kept in err, the first only, and the reader goes on with a zero
// value: it looks at err once, before it acts.
type fields struct {
	of   string // the command, or "update.updates": what errors name
	list []field
	err  error
}

type field struct {
	name  []byte
	value bson.RawValue
}

// known says which fields there are; nil allows any.
type known map[string]knownAs

type knownAs byte

const (
	isKnown   knownAs = iota + 1
	isRefused         // MongoDB's, but not this server's
)

// knownFields makes the table from names separated by spaces.
func knownFields(names, refused string) known {
	k := known{"collation": isKnown}
	for name := range strings.FieldsSeq(names) {
		k[name] = isKnown
	}
	for name := range strings.FieldsSeq(refused) {
		k[name] = isRefused
	}
	return k
}

// read takes the fields of a document, of which the first ones may have any name.
func (f *fields) read(doc bson.Raw, k known, first int) {
	f.list = make([]field, 0, 16)
	for it := value.NewIter(doc); it.Next(); {
		name := string(it.Key)
		switch as := k[name]; {
		case k == nil || len(f.list) < first:
		case as == 0:
			f.fail(mongoerr.New(40415, "BSON field '%s.%s' is an unknown field.", f.of, name))
		case as == isRefused && !isOff(it.Value):
			f.fail(mongoerr.NotImplemented("the field " + name + " of " + f.of))
		case f.get(name).Type != 0:
			f.fail(mongoerr.New(40413, "BSON field '%s.%s' is a duplicate field", f.of, name))
		case name == "collation" && !isSimple(it.Value):
			f.fail(mongoerr.NotImplemented("collation"))
		}
		f.list = append(f.list, field{it.Key, it.Value})
	}
}

// isOff reports whether an option's value asks for nothing.
func isOff(v bson.RawValue) bool {
	return v.Type == bson.TypeNull || v.Type == bson.TypeBoolean && !v.Boolean() ||
		v.Type == bson.TypeEmbeddedDocument && len(v.Value) == len(emptyDoc)
}

// isSimple reports whether a collation is the simple one, or none.
func isSimple(v bson.RawValue) bool {
	if v.Type != bson.TypeEmbeddedDocument {
		return false
	}
	locale, _ := value.Lookup(v.Value, "locale")
	name, _ := locale.StringValueOK()
	return name == "simple" || len(v.Value) == len(emptyDoc)
}

// fail keeps the first error.
func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// get returns a field, with type 0 when it is not there.
func (f *fields) get(name string) bson.RawValue {
	for i := range f.list {
		if string(f.list[i].name) == name {
			return f.list[i].value
		}
	}
	return bson.RawValue{}
}

// given returns a field, with type 0 also when it is null.
func (f *fields) given(name string) bson.RawValue {
	if v := f.get(name); v.Type != bson.TypeNull {
		return v
	}
	return bson.RawValue{}
}

// required returns a field that must be there.
func (f *fields) required(name string) bson.RawValue {
	v := f.get(name)
	if v.Type == 0 {
		f.wrongType(name, "", v)
	}
	return v
}

func (f *fields) wrongType(name, want string, v bson.RawValue) {
	if v.Type == 0 {
		f.fail(mongoerr.New(40414, "BSON field '%s.%s' is missing but a required field", f.of, name))
	}
	f.fail(mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type '%s'",
		f.of, name, v.Type, want))
}

// document returns a field that is a document, nil when it is not there.
func (f *fields) document(name string) bson.Raw {
	v := f.given(name)
	switch v.Type {
	case 0:
	case bson.TypeEmbeddedDocument:
		return v.Value
	default:
		f.wrongType(name, "object", v)
	}
	return nil
}

// documents returns the documents of an array field.
func (f *fields) documents(name string, required bool) (docs []bson.Raw) {
	v := f.get(name)
	switch {
	case v.Type == 0 && !required:
		return nil
	case v.Type == 0:
		f.required(name)
	case v.Type != bson.TypeArray:
		f.wrongType(name, "array", v)
	default:
		docs = []bson.Raw{}
		for it := value.NewIter(v.Value); it.Next(); {
			if it.Value.Type != bson.TypeEmbeddedDocument {
				f.wrongType(name+"."+string(it.Key), "object", it.Value)
			}
			docs = append(docs, it.Value.Value)
		}
	}
	return docs
}

func (f *fields) integer(name string, missing int64) int64 {
	v := f.given(name)
	if n, ok := value.AsInteger(v); ok {
		return n
	}
	switch {
	case v.Type == 0:
		return missing
	case value.ClassOf(v.Type) == value.ClassNumber:
		return int64(value.AsDouble(v))
	}
	f.wrongType(name, "long", v)
	return missing
}

// count is an integer that must not be negative, small enough to add two of them.
func (f *fields) count(name string, missing int64) int {
	n := f.integer(name, missing)
	if n < 0 {
		f.fail(mongoerr.New(51024, "BSON field '%s' value must be >= 0, actual value '%d'", name, n))
	}
	return int(min(n, math.MaxInt64/2))
}

// boolean may be given as a number, as commands allow it.
func (f *fields) boolean(name string) bool {
	v := f.given(name)
	if v.Type != 0 && value.ClassOf(v.Type) == value.ClassNumber {
		return value.AsDouble(v) != 0
	}
	return v.Type != 0 && f.flag(name)
}

// flag is true or false: statements allow nothing else.
func (f *fields) flag(name string) bool {
	v := f.get(name)
	on, ok := v.BooleanOK()
	if !ok && v.Type != 0 {
		f.wrongType(name, "bool", v)
	}
	return on
}

func (f *fields) filter(name string) *query.Filter {
	filter, err := query.CompileFilter(f.document(name))
	f.fail(err)
	return filter
}

func (f *fields) sort(name string) *query.Sort {
	s, err := query.CompileSort(f.document(name))
	f.fail(err)
	return s
}

func (f *fields) projection(name string) *query.Projection {
	p, err := query.CompileProjection(f.document(name))
	f.fail(err)
	return p
}
