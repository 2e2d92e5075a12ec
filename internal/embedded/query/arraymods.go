package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// push is $push; an unset position is the end, an unset slice no limit.
type push struct {
	values   []bson.RawValue
	position *int64
	slice    *int64
	sort     func(a, b bson.RawValue) int
}

func parsePush(_ string, v bson.RawValue) (modifier, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return push{values: []bson.RawValue{v}}, nil
	}
	each, ok := value.Lookup(v.Value, "$each")
	if !ok {
		return push{values: []bson.RawValue{v}}, checkNames(v)
	}
	if each.Type != bson.TypeArray {
		return nil, badValue("The argument to $each in $push must be an array but it was of type: %s", typeName(each.Type))
	}
	m := push{values: values(each.Value)}
	for it := value.NewIter(v.Value); it.Next(); {
		var err error
		switch key := string(it.Key); key {
		case "$each":
			err = checkNames(each)
		case "$position", "$slice":
			n, ok := wholeNumber(it.Value)
			if !ok {
				return nil, badValue("The value for %s must be an integer value but was given type: %s", key, typeName(it.Value.Type))
			}
			if key == "$slice" {
				m.slice = &n
			} else {
				m.position = &n
			}
		case "$sort":
			m.sort, err = parsePushSort(it.Value)
		default:
			err = badValue("Unrecognized clause in $push: %s", key)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func parsePushSort(v bson.RawValue) (func(a, b bson.RawValue) int, error) {
	if value.ClassOf(v.Type) == value.ClassNumber {
		sign, ok := direction(v)
		if !ok {
			return nil, badValue("The $sort element value must be either 1 or -1")
		}
		return func(a, b bson.RawValue) int { return sign * value.Compare(a, b) }, nil
	}
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, badValue("The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields")
	}
	type field struct {
		parts []part
		sign  int
	}
	var fields []field
	for it := value.NewIter(v.Value); it.Next(); {
		sign, ok := direction(it.Value)
		if !ok {
			return nil, badValue("The $sort element value must be either 1 or -1")
		}
		parts := cut(string(it.Key))
		for _, p := range parts {
			if p.name == "" {
				return nil, badValue("The $sort field is a dotted field but has an empty part: %s", it.Key)
			}
		}
		fields = append(fields, field{parts, sign})
	}
	if fields == nil {
		return nil, badValue("The $sort pattern is empty when it should be a set of fields.")
	}
	return func(a, b bson.RawValue) int {
		for _, f := range fields {
			if c := value.Compare(sortValue(a, f.parts), sortValue(b, f.parts)); c != 0 {
				return c * f.sign
			}
		}
		return 0
	}, nil
}

func direction(v bson.RawValue) (int, bool) {
	n, ok := wholeNumber(v)
	return int(n), ok && (n == 1 || n == -1)
}

// sortValue is what an element of an array is sorted by: arrays on the way are
// entered by index only, and what is missing is null.
func sortValue(v bson.RawValue, parts []part) bson.RawValue {
	if v.Type != bson.TypeEmbeddedDocument {
		return value.Null
	}
	for _, p := range parts {
		if !value.IsObject(v) {
			return value.Null
		}
		var ok bool
		if v, ok = value.Lookup(v.Value, p.name); !ok {
			return value.Null
		}
	}
	return v
}

func (m push) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	var elems []bson.RawValue
	switch old.Type {
	case 0:
		if _, err := created(n, at, old); err != nil {
			return result{}, err
		}
	case bson.TypeArray:
		elems = values(old.Value)
	default:
		return result{}, badValue("The field '%s' must be an array but is of type %s", n.path, typeName(old.Type))
	}
	changed := old.Type == 0 || len(m.values) > 0
	where := len(elems)
	if m.position != nil {
		if p := *m.position; p >= 0 {
			where = int(min(p, int64(len(elems))))
		} else {
			where = int(max(0, int64(len(elems))+p))
		}
	}
	elems = slices.Insert(elems, where, m.values...)
	if m.sort != nil {
		slices.SortStableFunc(elems, m.sort)
		changed = true
	}
	if m.slice != nil {
		if limit := *m.slice; limit >= 0 && int64(len(elems)) > limit {
			elems, changed = elems[:limit], true
		} else if limit < 0 && int64(len(elems)) > -limit {
			elems, changed = elems[int64(len(elems))+limit:], true
		}
	}
	if !changed {
		return result{}, nil
	}
	return result{act: set, v: value.Array(elems)}, nil
}

type addToSet struct{ values []bson.RawValue }

func parseAddToSet(_ string, v bson.RawValue) (modifier, error) {
	if v.Type == bson.TypeEmbeddedDocument {
		first := value.NewIter(v.Value)
		if first.Next() && string(first.Key) == "$each" {
			each := first.Value
			if each.Type != bson.TypeArray {
				return nil, mongoerr.New(mongoerr.TypeMismatch, "The argument to $each in $addToSet must be an array but it was of type %s", typeName(each.Type))
			}
			if first.Next() {
				return nil, badValue("Found unexpected fields after $each in $addToSet: %s", v)
			}
			return addToSet{appendNew(nil, values(each.Value))}, checkNames(each)
		}
	}
	return addToSet{[]bson.RawValue{v}}, checkNames(v)
}

// appendNew appends those of more that are not there yet.
func appendNew(elems, more []bson.RawValue) []bson.RawValue {
	for _, v := range more {
		if !contains(elems, v) {
			elems = append(elems, v)
		}
	}
	return elems
}

func contains(vs []bson.RawValue, v bson.RawValue) bool {
	return slices.ContainsFunc(vs, func(w bson.RawValue) bool { return value.Equal(v, w) })
}

func (m addToSet) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	switch old.Type {
	case 0:
		return created(n, at, value.Array(m.values))
	case bson.TypeArray:
	default:
		return result{}, badValue("Cannot apply $addToSet to non-array field. Field named '%s' has non-array type %s", n.path, typeName(old.Type))
	}
	elems := values(old.Value)
	was := len(elems)
	if elems = appendNew(elems, m.values); len(elems) == was {
		return result{}, nil
	}
	return result{act: set, v: value.Array(elems)}, nil
}

type pop struct{ first bool }

func parsePop(_ string, v bson.RawValue) (modifier, error) {
	n, ok := wholeNumber(v)
	if !ok {
		return nil, mongoerr.New(mongoerr.FailedToParse, "Expected an integer: %s", v)
	}
	if n != 1 && n != -1 {
		return nil, mongoerr.New(mongoerr.FailedToParse, "$pop expects 1 or -1, found: %s", v)
	}
	return pop{n < 0}, nil
}

func (m pop) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	if old.Type == 0 {
		return absent(n, at)
	}
	if old.Type != bson.TypeArray {
		return result{}, mongoerr.New(mongoerr.TypeMismatch, "Path '%s' contains an element of non-array type '%s'", n.path, typeName(old.Type))
	}
	elems := values(old.Value)
	switch {
	case len(elems) == 0:
		return result{}, nil
	case m.first:
		return result{act: set, v: value.Array(elems[1:])}, nil
	}
	return result{act: set, v: value.Array(elems[:len(elems)-1])}, nil
}

// pull is $pull and $pullAll: it removes the elements that match.
type pull struct {
	name  string
	match func(bson.RawValue) bool
}

func parsePullAll(_ string, v bson.RawValue) (modifier, error) {
	if v.Type != bson.TypeArray {
		return nil, badValue("$pullAll requires an array argument but was given a %s", typeName(v.Type))
	}
	all := values(v.Value)
	return pull{"$pullAll", func(elem bson.RawValue) bool { return contains(all, elem) }}, nil
}

func parsePull(_ string, v bson.RawValue) (modifier, error) {
	first := value.NewIter(nil)
	if v.Type == bson.TypeEmbeddedDocument {
		first = value.NewIter(v.Value)
		first.Next()
	}
	_, operator := operators[string(first.Key)]
	operator = operator || slices.Contains(unsupportedField, string(first.Key))
	switch {
	case operator || v.Type == bson.TypeRegex:
		// A condition on the element itself.
		nodes, err := parseField("", v)
		if err != nil {
			return nil, err
		}
		f := arrayFilter{filter: &Filter{simplify(&Node{Op: OpAnd, Children: nodes})}}
		return pull{"$pull", f.match}, nil
	case v.Type == bson.TypeEmbeddedDocument:
		f, err := CompileFilter(v.Value)
		if err != nil {
			return nil, err
		}
		return pull{"$pull", func(elem bson.RawValue) bool {
			return elem.Type == bson.TypeEmbeddedDocument && f.Match(elem.Value)
		}}, nil
	}
	return pull{"$pull", func(elem bson.RawValue) bool { return value.Equal(elem, v) }}, nil
}

func (m pull) apply(_ *env, n *node, old bson.RawValue, at place) (result, error) {
	if old.Type == 0 {
		return absent(n, at)
	}
	if old.Type != bson.TypeArray {
		return result{}, badValue("Cannot apply %s to a non-array value", m.name)
	}
	elems := values(old.Value)
	was := len(elems)
	if elems = slices.DeleteFunc(elems, m.match); len(elems) == was {
		return result{}, nil
	}
	return result{act: set, v: value.Array(elems)}, nil
}
