package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// arrayAt returns the elements of the array to modify; there is none (nil) only
// where one can be created. Other values fail with code.
func arrayAt(name string, code int32, n *node, old bson.RawValue, at place) []bson.RawValue {
	if old.Type == 0 {
		reachable(n, at)
		return nil
	}
	if old.Type != bson.TypeArray {
		fail(code, "Cannot apply %s to non-array field '%s', which has type %s", name, n.path, typeName(old.Type))
	}
	return value.Elements(old.Value)
}

func parsePush(leaf *node, v bson.RawValue) modifier {
	each, ok := value.Lookup(document(v), "$each")
	if !ok {
		checkNames(v)
		leaf.pushed = 1
		return push([]bson.RawValue{v}, nil, nil, nil)
	}
	need(each.Type == bson.TypeArray, "The argument to $each in $push must be an array, not a %s", typeName(each.Type))
	checkNames(each)
	var position, slice *int64
	var order func(a, b bson.RawValue) int
	for it := value.NewIter(v.Value); it.Next(); {
		switch key := string(it.Key); key {
		case "$each":
		case "$position", "$slice":
			n, ok := wholeNumber(it.Value)
			need(ok, "The value for %s must be an integer value but was given type: %s", key, typeName(it.Value.Type))
			if key == "$slice" {
				slice = &n
			} else {
				position = &n
			}
		case "$sort":
			order = parsePushSort(it.Value)
		default:
			need(false, "Unrecognized clause in $push: %s", key)
		}
	}
	values := value.Elements(each.Value)
	if position == nil && order == nil {
		leaf.pushed = len(values)
	}
	return push(values, position, slice, order)
}

// document is the bytes of a document, nil of other values.
func document(v bson.RawValue) []byte {
	if v.Type == bson.TypeEmbeddedDocument {
		return v.Value
	}
	return nil
}

// push is $push; no position is the end, no slice no limit.
func push(values []bson.RawValue, position, slice *int64, order func(a, b bson.RawValue) int) modifier {
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		elems := arrayAt("$push", mongoerr.BadValue, n, old, at)
		changed := old.Type == 0 || len(values) > 0 || order != nil
		where := len(elems)
		if position != nil {
			where, _ = window(*position, 0, len(elems))
		}
		elems = slices.Insert(elems, where, values...)
		if order != nil {
			slices.SortStableFunc(elems, order)
		}
		if slice != nil {
			from, to := 0, len(elems)
			if *slice < 0 {
				from, _ = window(*slice, 0, len(elems))
			} else {
				_, to = window(0, *slice, len(elems))
			}
			changed = changed || to-from < len(elems)
			elems = elems[from:to]
		}
		return arrayIf(changed, elems)
	}
}

// window is the part of n elements that begins at skip (from the end if
// negative) and has limit elements, or as many as there are.
func window(skip, limit int64, n int) (from, to int) {
	length := int64(n)
	if skip < 0 {
		skip = max(0, length+skip)
	}
	skip = min(skip, length)
	return int(skip), int(skip + min(limit, length-skip))
}

func parsePushSort(v bson.RawValue) func(a, b bson.RawValue) int {
	if value.ClassOf(v.Type) == value.ClassNumber {
		sign := pushDirection(v)
		return func(a, b bson.RawValue) int { return sign * value.Compare(a, b) }
	}
	need(v.Type == bson.TypeEmbeddedDocument, "The $sort of $push is invalid: use 1/-1, or {field: 1/-1}")
	type field struct {
		names []string
		sign  int
	}
	var fields []field
	for it := value.NewIter(v.Value); it.Next(); {
		f := field{strings.Split(string(it.Key), "."), pushDirection(it.Value)}
		need(!slices.Contains(f.names, ""), "The $sort field is a dotted field but has an empty part: %s", it.Key)
		fields = append(fields, f)
	}
	need(fields != nil, "The $sort pattern is empty when it should be a set of fields.")
	return func(a, b bson.RawValue) int {
		for _, f := range fields {
			if c := value.Compare(sortValue(a, f.names), sortValue(b, f.names)); c != 0 {
				return c * f.sign
			}
		}
		return 0
	}
}

func pushDirection(v bson.RawValue) int {
	sign, ok := direction(v)
	need(ok, "The $sort element value must be either 1 or -1")
	return sign
}

// direction reads the 1 or -1 of a sort order.
func direction(v bson.RawValue) (int, bool) {
	n, ok := wholeNumber(v)
	return int(n), ok && (n == 1 || n == -1)
}

// sortValue is what an element of an array is sorted by: arrays on the way are
// entered by index only, and what is missing is null.
func sortValue(v bson.RawValue, names []string) bson.RawValue {
	if v.Type == bson.TypeArray {
		return value.Null
	}
	for _, name := range names {
		if !value.IsObject(v) {
			return value.Null
		}
		v, _ = value.Lookup(v.Value, name)
	}
	return orNull(v)
}

func parseAddToSet(_ *node, v bson.RawValue) modifier {
	add := []bson.RawValue{v}
	if firstKey(v) == "$each" {
		each, _ := value.Lookup(v.Value, "$each")
		check(each.Type == bson.TypeArray, mongoerr.TypeMismatch, "The argument to $each in $addToSet must be an array")
		need(len(value.Elements(v.Value)) == 1, "Found unexpected fields after $each in $addToSet: %s", v)
		v, add = each, value.Elements(each.Value)
	}
	checkNames(v)
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		elems := arrayAt("$addToSet", mongoerr.BadValue, n, old, at)
		was := len(elems)
		isNew := func(v bson.RawValue) bool { return !contains(elems, v) }
		if len(add) > fewFields {
			there := setOf(elems)
			isNew = there.add
		}
		for _, v := range add {
			if isNew(v) {
				elems = append(elems, v)
			}
		}
		return arrayIf(old.Type == 0 || len(elems) > was, elems)
	}
}

func contains(vs []bson.RawValue, v bson.RawValue) bool {
	return slices.ContainsFunc(vs, func(w bson.RawValue) bool { return value.Equal(v, w) })
}

func parsePop(_ *node, v bson.RawValue) modifier {
	sign, ok := direction(v)
	parses(ok, "$pop expects 1 or -1, found: %s", v)
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		elems := arrayAt("$pop", mongoerr.TypeMismatch, n, old, at)
		switch {
		case len(elems) == 0:
			return change{}
		case sign < 0:
			return put(value.Array(elems[1:]))
		}
		return put(value.Array(elems[:len(elems)-1]))
	}
}

func parsePullAll(_ *node, v bson.RawValue) modifier {
	need(v.Type == bson.TypeArray, "$pullAll requires an array argument but was given a %s", typeName(v.Type))
	all := value.Elements(v.Value)
	if len(all) > fewFields {
		return pull("$pullAll", setOf(all).has)
	}
	return pull("$pullAll", func(elem bson.RawValue) bool { return contains(all, elem) })
}

func parsePull(_ *node, v bson.RawValue) modifier {
	switch {
	case hasOperator(v) || v.Type == bson.TypeRegex: // a condition on the element itself
		f := arrayFilter{filter: &Filter{simplify(&Node{Op: OpAnd, Children: parseField("", v)})}}
		return pull("$pull", f.match)
	case v.Type == bson.TypeEmbeddedDocument:
		f := compileFilter(v.Value)
		return pull("$pull", func(elem bson.RawValue) bool {
			return elem.Type == bson.TypeEmbeddedDocument && f.Match(elem.Value)
		})
	}
	return pull("$pull", func(elem bson.RawValue) bool { return value.Equal(elem, v) })
}

// pull is $pull and $pullAll: it removes the elements that match.
func pull(name string, match func(bson.RawValue) bool) modifier {
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		elems := arrayAt(name, mongoerr.BadValue, n, old, at)
		was := len(elems)
		elems = slices.DeleteFunc(elems, match)
		return arrayIf(len(elems) < was, elems)
	}
}
