package query

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// What MongoDB knows and this package refuses: at the top of a filter, and
// under a field.
var (
	unsupportedTop = []string{"$expr", "$where", "$text", "$jsonSchema", "$sampleRate",
		"$alwaysTrue", "$alwaysFalse"}
	unsupportedField = []string{"$geoWithin", "$geoIntersects", "$near", "$nearSphere", "$geoNear",
		"$within", "$maxDistance", "$minDistance", "$bitsAllSet", "$bitsAllClear", "$bitsAnySet",
		"$bitsAnyClear", "$expr", "$where", "$text", "$jsonSchema"}
)

func badValue(format string, args ...any) error {
	return mongoerr.New(mongoerr.BadValue, format, args...)
}

// parseAnd parses a whole filter.
func parseAnd(filter []byte) (*Node, error) {
	and := &Node{Op: OpAnd}
	for it := value.NewIter(filter); it.Next(); {
		key := string(it.Key)
		var nodes []*Node
		var err error
		if key != "" && key[0] == '$' {
			nodes, err = parseTop(key, it.Value)
		} else {
			nodes, err = parseField(key, it.Value)
		}
		if err != nil {
			return nil, err
		}
		and.Children = append(and.Children, nodes...)
	}
	return and, nil
}

func parseTop(key string, v bson.RawValue) ([]*Node, error) {
	node := &Node{}
	switch key {
	case "$and":
		node.Op = OpAnd
	case "$or":
		node.Op = OpOr
	case "$nor":
		node.Op = OpNor
	case "$comment":
		return nil, nil
	default:
		if slices.Contains(unsupportedTop, key) {
			return nil, mongoerr.NotImplemented(key)
		}
		return nil, badValue("unknown top level operator: %s. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.", key)
	}
	if v.Type != bson.TypeArray {
		return nil, badValue("%s must be an array", key)
	}
	for it := value.NewIter(v.Value); it.Next(); {
		if it.Value.Type != bson.TypeEmbeddedDocument {
			return nil, badValue("$or/$and/$nor entries need to be full objects")
		}
		child, err := parseAnd(it.Value.Value)
		if err != nil {
			return nil, err
		}
		node.Children = append(node.Children, child)
	}
	if len(node.Children) == 0 {
		return nil, badValue("$and/$or/$nor must be a nonempty array")
	}
	return []*Node{node}, nil
}

// parseField parses what a filter says of one field: operators, a regular
// expression or a value to equal.
func parseField(path string, v bson.RawValue) ([]*Node, error) {
	if isOperators(v) {
		return parseOperators(path, v.Value)
	}
	node, err := parseEqual(path, v)
	return []*Node{node}, err
}

func parseEqual(path string, v bson.RawValue) (*Node, error) {
	if v.Type == bson.TypeRegex {
		return regexNode(path, v)
	}
	return compareNode(OpEq, path, v)
}

func compareNode(op Op, path string, v bson.RawValue) (*Node, error) {
	if v.Type == bson.TypeUndefined {
		return nil, badValue("cannot compare to undefined")
	}
	return leaf(op, path, v), nil
}

func leaf(op Op, path string, v bson.RawValue) *Node {
	return &Node{Op: op, Path: path, parts: cut(path), Value: v}
}

func regexNode(path string, v bson.RawValue) (*Node, error) {
	re, err := compileRegex(v.Regex())
	n := leaf(OpRegex, path, missing)
	n.Regexes = []Regex{re}
	return n, err
}

// isOperators reports whether v is a document of operators rather than a value.
func isOperators(v bson.RawValue) bool {
	if v.Type != bson.TypeEmbeddedDocument {
		return false
	}
	it := value.NewIter(v.Value)
	return it.Next() && len(it.Key) > 0 && it.Key[0] == '$' && !isDBRef(it.Key)
}

func isDBRef(key []byte) bool {
	return string(key) == "$ref" || string(key) == "$id" || string(key) == "$db"
}

func parseOperators(path string, ops []byte) ([]*Node, error) {
	var nodes []*Node
	for it := value.NewIter(ops); it.Next(); {
		key := string(it.Key)
		if key == "$options" {
			if _, ok := value.Lookup(ops, "$regex"); !ok {
				return nil, badValue("$options needs a $regex")
			}
			continue
		}
		parse, ok := operators[key]
		switch {
		case slices.Contains(unsupportedField, key):
			return nil, mongoerr.NotImplemented(key)
		case !ok:
			return nil, badValue("unknown operator: %s", key)
		}
		more, err := parse(path, it.Value, ops)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, more...)
	}
	return nodes, nil
}

// operators parse what follows an operator under a field; all is the document
// the operator stands in.
var operators map[string]func(path string, v bson.RawValue, all []byte) ([]*Node, error)

func init() { // not a literal: the parsers refer to the table
	comparison := func(op Op) func(string, bson.RawValue, []byte) ([]*Node, error) {
		return func(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
			if v.Type == bson.TypeRegex && op != OpEq {
				return nil, badValue("Can't have RegEx as arg to predicate over field '%s'.", path)
			}
			return one(compareNode(op, path, v))
		}
	}
	operators = map[string]func(string, bson.RawValue, []byte) ([]*Node, error){
		"$eq": comparison(OpEq), "$lt": comparison(OpLt), "$lte": comparison(OpLte),
		"$gt": comparison(OpGt), "$gte": comparison(OpGte),
		"$ne": func(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
			if v.Type == bson.TypeRegex {
				return nil, badValue("Can't have regex as arg to $ne.")
			}
			return not(one(compareNode(OpEq, path, v)))
		},
		"$in": func(path string, v bson.RawValue, _ []byte) ([]*Node, error) { return one(parseIn(path, "$in", v)) },
		"$nin": func(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
			return not(one(parseIn(path, "$nin", v)))
		},
		"$not": parseNot, "$all": parseAll, "$elemMatch": parseElemMatch, "$regex": parseRegex,
		"$exists": func(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
			nodes := []*Node{leaf(OpExists, path, missing)}
			if !truthy(v) {
				return not(nodes, nil)
			}
			return nodes, nil
		},
		"$type": parseType, "$size": parseSize, "$mod": parseMod,
	}
}

func one(n *Node, err error) ([]*Node, error) { return []*Node{n}, err }

func not(nodes []*Node, err error) ([]*Node, error) {
	child := &Node{Op: OpAnd, Children: nodes}
	return []*Node{{Op: OpNot, Children: []*Node{child}}}, err
}

func parseNot(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
	if v.Type == bson.TypeRegex {
		return not(one(regexNode(path, v)))
	}
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, badValue("$not needs a regex or a document")
	}
	nodes, err := parseOperators(path, v.Value)
	if err == nil && len(nodes) == 0 {
		return nil, badValue("$not cannot be empty")
	}
	return not(nodes, err)
}

func parseIn(path, name string, v bson.RawValue) (*Node, error) {
	if v.Type != bson.TypeArray {
		return nil, badValue("%s needs an array", name)
	}
	n := leaf(OpIn, path, missing)
	for it := value.NewIter(v.Value); it.Next(); {
		switch {
		case isOperators(it.Value):
			return nil, badValue("cannot nest $ under %s", name)
		case it.Value.Type == bson.TypeUndefined:
			return nil, badValue("InMatchExpression equality cannot be undefined")
		case it.Value.Type == bson.TypeRegex:
			re, err := compileRegex(it.Value.Regex())
			if err != nil {
				return nil, err
			}
			n.Regexes = append(n.Regexes, re)
		default:
			n.Values = append(n.Values, it.Value)
		}
	}
	slices.SortStableFunc(n.Values, value.Compare)
	n.Values = slices.CompactFunc(n.Values, value.Equal)
	switch {
	case len(n.Values) == 1 && len(n.Regexes) == 0:
		return leaf(OpEq, path, n.Values[0]), nil
	case len(n.Values)+len(n.Regexes) == 0:
		n.Op = OpFalse
	}
	return n, nil
}

func parseAll(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
	if v.Type != bson.TypeArray {
		return nil, badValue("$all needs an array")
	}
	var nodes []*Node
	elem := false
	for it := value.NewIter(v.Value); it.Next(); {
		isElem := false
		if isOperators(it.Value) {
			first := value.NewIter(it.Value.Value)
			first.Next()
			isElem = string(first.Key) == "$elemMatch"
			if !isElem {
				return nil, badValue("no $ expressions in $all")
			}
			if arrayLen(it.Value.Value) > 1 {
				return nil, badValue("$all/$elemMatch has to be consistent")
			}
		}
		if nodes != nil && isElem != elem {
			return nil, badValue("$all/$elemMatch has to be consistent")
		}
		elem = isElem
		more, err := parseField(path, it.Value)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, more...)
	}
	if nodes == nil {
		return []*Node{{Op: OpFalse}}, nil
	}
	return nodes, nil
}

func parseElemMatch(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, badValue("$elemMatch needs an Object")
	}
	first := value.NewIter(v.Value)
	first.Next()
	n := leaf(OpElemValue, path, missing)
	var err error
	_, operator := operators[string(first.Key)]
	if operator || slices.Contains(unsupportedField, string(first.Key)) {
		n.Children, err = parseOperators("", v.Value)
		return []*Node{n}, err
	}
	n.Op = OpElemMatch
	child, err := parseAnd(v.Value)
	n.Children = []*Node{child}
	return []*Node{n}, err
}

func parseRegex(path string, v bson.RawValue, all []byte) ([]*Node, error) {
	pattern, options, ok := v.RegexOK()
	if !ok {
		if pattern, ok = v.StringValueOK(); !ok {
			return nil, badValue("$regex has to be a string")
		}
	}
	if o, ok := value.Lookup(all, "$options"); ok {
		given, isString := o.StringValueOK()
		switch {
		case !isString:
			return nil, badValue("$options has to be a string")
		case options != "":
			return nil, mongoerr.New(51075, "options set in both $regex and $options")
		}
		options = given
	}
	re, err := compileRegex(pattern, options)
	n := leaf(OpRegex, path, missing)
	n.Regexes = []Regex{re}
	return []*Node{n}, err
}

func parseSize(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
	n := leaf(OpSize, path, missing)
	var ok bool
	if n.length, ok = wholeNumber(v); !ok {
		return nil, badValue("Failed to parse $size. Expected an integer: %s", v)
	}
	if n.length < 0 {
		return nil, badValue("Failed to parse $size. Expected a non-negative number in: %s", v)
	}
	return []*Node{n}, nil
}

func parseMod(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
	if v.Type != bson.TypeArray {
		return nil, badValue("malformed mod, needs to be an array")
	}
	var nums []int64
	for it := value.NewIter(v.Value); it.Next(); {
		i, ok := value.AsInteger(it.Value)
		if !ok {
			return nil, badValue("malformed mod, not a number: %s", it.Value)
		}
		nums = append(nums, i)
	}
	switch {
	case len(nums) < 2:
		return nil, badValue("malformed mod, not enough elements")
	case len(nums) > 2:
		return nil, badValue("malformed mod, too many elements")
	case nums[0] == 0:
		return nil, badValue("divisor cannot be 0")
	}
	n := leaf(OpMod, path, missing)
	n.divisor, n.remainder = nums[0], nums[1]
	return []*Node{n}, nil
}

// wholeNumber returns a number that has no fraction.
func wholeNumber(v bson.RawValue) (int64, bool) {
	i, ok := value.AsInteger(v)
	if v.Type == bson.TypeDouble && v.Double() != math.Trunc(v.Double()) {
		return 0, false
	}
	return i, ok && value.Equal(value.Int64(i), v)
}

// truthy is how MongoDB reads a value where it wants a boolean.
func truthy(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeBoolean:
		return v.Boolean()
	case bson.TypeNull, bson.TypeUndefined, 0:
		return false
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return !value.Equal(v, value.Int32(0))
	}
	return true
}
