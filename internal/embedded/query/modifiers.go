package query

import (
	"encoding/binary"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// modifier is one operator at one path. apply gets the old value, zero if
// there is none.
type modifier interface {
	apply(e *env, n *node, old bson.RawValue, at place) (result, error)
}

// modifiers parse the argument an operator has for one path.
var modifiers = map[string]func(path string, v bson.RawValue) (modifier, error){
	"$set":         parseSet,
	"$setOnInsert": parseSet,
	"$unset":       func(string, bson.RawValue) (modifier, error) { return unset{}, nil },
	"$inc": func(path string, v bson.RawValue) (modifier, error) {
		return parseArithmetic("$inc", "increment", value.Add, path, v)
	},
	"$mul": func(path string, v bson.RawValue) (modifier, error) {
		return parseArithmetic("$mul", "multiply", value.Mul, path, v)
	},
	"$min":         func(_ string, v bson.RawValue) (modifier, error) { return bound{v, -1}, checkNames(v) },
	"$max":         func(_ string, v bson.RawValue) (modifier, error) { return bound{v, 1}, checkNames(v) },
	"$currentDate": parseCurrentDate,
	"$rename":      parseRename,
	"$push":        parsePush,
	"$addToSet":    parseAddToSet,
	"$pop":         parsePop,
	"$pull":        parsePull,
	"$pullAll":     parsePullAll,
}

// created is the result of a modifier that creates what is missing.
func created(n *node, at place, v bson.RawValue) (result, error) {
	if !at.viable {
		return result{}, mongoerr.New(mongoerr.PathNotViable, "Cannot create field in the path '%s': an element on the way is no document", n.path)
	}
	return result{act: set, v: v}, nil
}

// absent is the result of a modifier that does nothing where nothing is, but
// insists on a path that could be.
func absent(n *node, at place) (result, error) {
	if !at.viable {
		return result{}, mongoerr.New(mongoerr.PathNotViable, "Cannot use the path '%s' to traverse the document: an element on the way is no document", n.path)
	}
	return result{}, nil
}

type setTo struct{ v bson.RawValue }

func parseSet(_ string, v bson.RawValue) (modifier, error) { return setTo{v}, checkNames(v) }

func (m setTo) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	if old.Type == 0 {
		return created(n, at, m.v)
	}
	if value.Identical(old, m.v) {
		return result{}, nil
	}
	return result{act: set, v: m.v}, nil
}

type unset struct{}

func (unset) apply(_ *env, _ *node, old bson.RawValue, _ place) (result, error) {
	if old.Type == 0 {
		return result{}, nil
	}
	return result{act: remove}, nil
}

type arithmetic struct {
	name string
	do   func(a, b bson.RawValue) (bson.RawValue, error)
	v    bson.RawValue
}

func parseArithmetic(name, verb string, do func(a, b bson.RawValue) (bson.RawValue, error), path string, v bson.RawValue) (modifier, error) {
	if value.ClassOf(v.Type) != value.ClassNumber {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "Cannot %s with non-numeric argument: {%s: %s}", verb, path, v)
	}
	return arithmetic{name, do, v}, nil
}

func (m arithmetic) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	if old.Type == 0 {
		v := m.v
		if m.name == "$mul" {
			var err error
			if v, err = m.do(m.v, value.Int32(0)); err != nil {
				return result{}, err
			}
		}
		return created(n, at, v)
	}
	if value.ClassOf(old.Type) != value.ClassNumber {
		return result{}, mongoerr.New(mongoerr.TypeMismatch, "Cannot apply %s to a value of non-numeric type. The field '%s' has non-numeric type %s", m.name, n.path, typeName(old.Type))
	}
	v, err := m.do(old, m.v)
	switch {
	case mongoerr.Code(err) == mongoerr.BadValue:
		return result{}, badValue("Failed to apply %s operations to current value (%s) of '%s': integer overflow", m.name, old, n.path)
	case err != nil:
		return result{}, err
	case v.Type == old.Type && !isNaN(v) && value.Equal(v, old):
		return result{}, nil
	}
	return result{act: set, v: v}, nil
}

// bound is $min (sign -1) and $max (1).
type bound struct {
	v    bson.RawValue
	sign int
}

func (m bound) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	if old.Type == 0 {
		return created(n, at, m.v)
	}
	if value.Compare(m.v, old)*m.sign <= 0 {
		return result{}, nil
	}
	return result{act: set, v: m.v}, nil
}

type currentDate struct{ timestamp bool }

func parseCurrentDate(path string, v bson.RawValue) (modifier, error) {
	if v.Type == bson.TypeBoolean {
		return currentDate{}, nil
	}
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, badValue("%s is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({$type: 'timestamp/date'}).", typeName(v.Type))
	}
	var m currentDate
	typed := false
	for it := value.NewIter(v.Value); it.Next(); {
		if string(it.Key) != "$type" {
			return nil, badValue("Unrecognized $currentDate option: %s", it.Key)
		}
		name, _ := it.Value.StringValueOK()
		if name != "date" && name != "timestamp" {
			return nil, badValue("The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {%s: {$type: 'date'}}}", path)
		}
		m.timestamp, typed = name == "timestamp", true
	}
	if !typed {
		return nil, badValue("The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {%s: {$type: 'date'}}}", path)
	}
	return m, nil
}

func (m currentDate) apply(e *env, n *node, _ bson.RawValue, at place) (result, error) {
	if m.timestamp {
		return created(n, at, timestamp(e.ctx.Timestamp))
	}
	return created(n, at, bson.RawValue{Type: bson.TypeDateTime, Value: binary.LittleEndian.AppendUint64(nil, uint64(e.ctx.Now))})
}

func timestamp(ts bson.Timestamp) bson.RawValue {
	return bson.RawValue{Type: bson.TypeTimestamp, Value: binary.LittleEndian.AppendUint64(nil, uint64(ts.T)<<32|uint64(ts.I))}
}

// rename stands at the new name; the old one is removed by an unset of its own.
type rename struct{ from []string }

func parseRename(from string, v bson.RawValue) (modifier, error) {
	to, _ := v.StringValueOK()
	switch {
	case strings.IndexByte(to, 0) >= 0:
		return nil, badValue("The 'to' field for $rename cannot contain an embedded null byte")
	case to == from:
		return nil, badValue("The source and target field for $rename must differ: %s: %q", from, to)
	}
	if strings.HasPrefix(from, to+".") || strings.HasPrefix(to, from+".") {
		return nil, badValue("The source and target field for $rename must not be on the same path: %s: %q", from, to)
	}
	for _, p := range []string{from, to} {
		for _, name := range strings.Split(p, ".") {
			if name == "$" || isFilterName(name) {
				return nil, badValue("The source and target field for $rename may not be dynamic: %s", p)
			}
		}
	}
	return rename{strings.Split(from, ".")}, nil
}

func (m rename) apply(e *env, n *node, _ bson.RawValue, at place) (result, error) {
	v := value.Document(e.doc)
	inArray := false
	for _, name := range m.from {
		ok := false
		switch v.Type {
		case bson.TypeEmbeddedDocument:
			v, ok = value.Lookup(v.Value, name)
		case bson.TypeArray:
			if _, numeric := index(name); !numeric {
				return absent(n, place{})
			}
			inArray = true
			v, ok = value.Lookup(v.Value, name)
		default:
			return absent(n, place{})
		}
		if !ok {
			return result{}, nil
		}
	}
	if inArray {
		return result{}, badValue("The source field cannot be an array element, '%s' in doc has an array", strings.Join(m.from, "."))
	}
	if at.inArray {
		return result{}, badValue("The destination field cannot be an array element, '%s' in doc has an array", n.path)
	}
	return created(n, at, v)
}
