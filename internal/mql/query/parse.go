package query

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// What MongoDB knows and this package refuses: at the top of a filter, and
// under a field.
var (
	lackingTop   = strings.Fields("$expr $where $text $jsonSchema $sampleRate $alwaysTrue $alwaysFalse")
	lackingField = strings.Fields(`$geoWithin $geoIntersects $near $nearSphere $geoNear $within $maxDistance
		$minDistance $bitsAllSet $bitsAllClear $bitsAnySet $bitsAnyClear $expr $where $text $jsonSchema`)
)

// parseAnd parses a whole filter.
func parseAnd(filter []byte) *Node {
	and := &Node{Op: OpAnd}
	for it := value.NewIter(filter); it.Next(); {
		switch key := string(it.Key); {
		case key == "$comment":
		case strings.HasPrefix(key, "$"):
			and.Children = append(and.Children, parseTop(key, it.Value))
		default:
			and.Children = append(and.Children, parseField(key, it.Value)...)
		}
	}
	return and
}

func parseTop(key string, v bson.RawValue) *Node {
	ops := map[string]Op{"$and": OpAnd, "$or": OpOr, "$nor": OpNor}
	op := entry(ops, key, lackingTop, "", func() { need(false, "unknown top level operator: %s", key) })
	node := &Node{Op: op}
	need(v.Type == bson.TypeArray, "%s must be an array", key)
	for it := value.NewIter(v.Value); it.Next(); {
		need(it.Value.Type == bson.TypeEmbeddedDocument, "$or/$and/$nor entries need to be full objects")
		node.Children = append(node.Children, parseAnd(it.Value.Value))
	}
	need(node.Children != nil, "$and/$or/$nor must be a nonempty array")
	return node
}

// parseField parses what a filter says of one field: operators, a regular
// expression or a value to equal.
func parseField(path string, v bson.RawValue) []*Node {
	switch {
	case isOperators(v):
		return parseOperators(path, v.Value)
	case v.Type == bson.TypeRegex:
		return regexNode(path, compileRegex(v.Regex()))
	}
	return comparison(OpEq)(path, v, nil)
}

func regexNode(path string, r Regex) []*Node { return test(OpRegex, path, r.match) }

// firstKey is the name of the first field of a document, "" in all else.
func firstKey(v bson.RawValue) string {
	if v.Type != bson.TypeEmbeddedDocument {
		return ""
	}
	it := value.NewIter(v.Value)
	it.Next()
	return string(it.Key)
}

// isOperators reports whether v is a document of operators rather than a value.
func isOperators(v bson.RawValue) bool {
	key := firstKey(v)
	return strings.HasPrefix(key, "$") && !isDBRef(key)
}

func isDBRef(key string) bool { return key == "$ref" || key == "$id" || key == "$db" }

// hasOperator reports whether v begins with an operator of a field.
func hasOperator(v bson.RawValue) bool {
	_, known := operators[firstKey(v)]
	return known || slices.Contains(lackingField, firstKey(v))
}

func parseOperators(path string, ops []byte) (nodes []*Node) {
	for it := value.NewIter(ops); it.Next(); {
		key := string(it.Key)
		if key == "$options" { // $regex takes it
			_, ok := value.Lookup(ops, "$regex")
			need(ok, "$options needs a $regex")
			continue
		}
		parse := entry(operators, key, lackingField, "", func() { need(false, "unknown operator: %s", key) })
		nodes = append(nodes, parse(path, it.Value, ops)...)
	}
	return nodes
}

// operators parse what follows an operator under a field; all is the document
// the operator stands in.
var operators map[string]func(path string, v bson.RawValue, all []byte) []*Node

func init() { // not a literal: the parsers refer to the table
	operators = map[string]func(string, bson.RawValue, []byte) []*Node{
		"$eq": comparison(OpEq), "$lt": comparison(OpLt), "$lte": comparison(OpLte),
		"$gt": comparison(OpGt), "$gte": comparison(OpGte),
		"$ne": func(path string, v bson.RawValue, _ []byte) []*Node {
			need(v.Type != bson.TypeRegex, "Can't have regex as arg to $ne.")
			return not(comparison(OpEq)(path, v, nil))
		},
		"$in":  func(path string, v bson.RawValue, _ []byte) []*Node { return parseIn(path, "$in", v) },
		"$nin": func(path string, v bson.RawValue, _ []byte) []*Node { return not(parseIn(path, "$nin", v)) },
		"$not": parseNot, "$all": parseAll, "$elemMatch": parseElemMatch, "$regex": parseRegex,
		"$exists": func(path string, v bson.RawValue, _ []byte) []*Node {
			exists := test(OpExists, path, func(v bson.RawValue) bool { return v.Type != 0 })
			if !truthy(v) {
				return not(exists)
			}
			return exists
		},
		"$type": parseType, "$size": parseSize, "$mod": parseMod,
	}
}

func comparison(op Op) func(string, bson.RawValue, []byte) []*Node {
	return func(path string, v bson.RawValue, _ []byte) []*Node {
		need(v.Type != bson.TypeUndefined, "cannot compare to undefined")
		if v.Type == bson.TypeRegex {
			need(op == OpEq, "Can't have RegEx as arg to predicate over field '%s'.", path)
		}
		return []*Node{leaf(op, path, v)}
	}
}

func not(nodes []*Node) []*Node {
	return []*Node{{Op: OpNot, Children: []*Node{{Op: OpAnd, Children: nodes}}}}
}

func parseNot(path string, v bson.RawValue, _ []byte) []*Node {
	if v.Type == bson.TypeRegex {
		return not(parseField(path, v))
	}
	need(v.Type == bson.TypeEmbeddedDocument, "$not needs a regex or a document")
	nodes := parseOperators(path, v.Value)
	need(nodes != nil, "$not cannot be empty")
	return not(nodes)
}

func parseIn(path, name string, v bson.RawValue) []*Node {
	need(v.Type == bson.TypeArray, "%s needs an array", name)
	n := leaf(OpIn, path, missing)
	for it := value.NewIter(v.Value); it.Next(); {
		need(!isOperators(it.Value), "cannot nest $ under %s", name)
		need(it.Value.Type != bson.TypeUndefined, "InMatchExpression equality cannot be undefined")
		if it.Value.Type == bson.TypeRegex {
			n.Regexes = append(n.Regexes, compileRegex(it.Value.Regex()))
		} else {
			n.Values = append(n.Values, it.Value)
		}
	}
	n.Values = distinct(n.Values)
	switch {
	case len(n.Values) == 1 && n.Regexes == nil:
		return []*Node{leaf(OpEq, path, n.Values[0])}
	case len(n.Values) == 0 && n.Regexes == nil:
		n.Op = OpFalse
	}
	return []*Node{n}
}

func parseAll(path string, v bson.RawValue, _ []byte) (nodes []*Node) {
	need(v.Type == bson.TypeArray, "$all needs an array")
	elem := false
	for it := value.NewIter(v.Value); it.Next(); {
		isElem := isOperators(it.Value)
		if isElem {
			need(firstKey(it.Value) == "$elemMatch", "no $ expressions in $all")
			need(len(value.Elements(it.Value.Value)) == 1, "$all/$elemMatch has to be consistent")
		}
		need(nodes == nil || isElem == elem, "$all/$elemMatch has to be consistent")
		elem = isElem
		nodes = append(nodes, parseField(path, it.Value)...)
	}
	if nodes == nil {
		return []*Node{{Op: OpFalse}}
	}
	return nodes
}

func parseElemMatch(path string, v bson.RawValue, _ []byte) []*Node {
	need(v.Type == bson.TypeEmbeddedDocument, "$elemMatch needs an Object")
	n := leaf(OpElemMatch, path, missing)
	if hasOperator(v) {
		n.Op = OpElemValue
		n.Children = parseOperators("", v.Value)
	} else {
		n.Children = []*Node{parseAnd(v.Value)}
	}
	return []*Node{n}
}

func parseRegex(path string, v bson.RawValue, all []byte) []*Node {
	pattern, options, ok := v.RegexOK()
	if !ok {
		pattern, ok = v.StringValueOK()
		need(ok, "$regex has to be a string")
	}
	if o, ok := value.Lookup(all, "$options"); ok {
		given, isString := o.StringValueOK()
		need(isString, "$options has to be a string")
		check(options == "", 51075, "options set in both $regex and $options")
		options = given
	}
	return regexNode(path, compileRegex(pattern, options))
}

func parseSize(path string, v bson.RawValue, _ []byte) []*Node {
	length, ok := wholeNumber(v)
	need(ok && length >= 0, "Failed to parse $size. Expected a non-negative integer: %s", v)
	return test(OpSize, path, func(v bson.RawValue) bool {
		return v.Type == bson.TypeArray && int64(len(value.Elements(v.Value))) == length
	})
}

func parseMod(path string, v bson.RawValue, _ []byte) []*Node {
	need(v.Type == bson.TypeArray, "malformed mod, needs to be an array")
	var nums []int64
	for it := value.NewIter(v.Value); it.Next(); {
		i, ok := value.AsInteger(it.Value)
		need(ok, "malformed mod, not a number: %s", it.Value)
		nums = append(nums, i)
	}
	need(len(nums) == 2, "malformed mod, not enough or too many elements")
	need(nums[0] != 0, "divisor cannot be 0")
	return test(OpMod, path, func(v bson.RawValue) bool {
		i, ok := value.AsInteger(v)
		return ok && i%nums[0] == nums[1]
	})
}

// wholeNumber returns a number that has no fraction.
func wholeNumber(v bson.RawValue) (int64, bool) {
	i, ok := value.AsInteger(v)
	return i, ok && value.Equal(value.Int64(i), v)
}

// truthy is how MongoDB reads a value where it wants a boolean.
func truthy(v bson.RawValue) bool {
	switch value.ClassOf(v.Type) {
	case value.ClassBoolean:
		return v.Boolean()
	case value.ClassNull, value.ClassUndefined:
		return false
	case value.ClassNumber:
		return !value.Equal(v, value.Int32(0))
	}
	return true
}

// typeNames are the names $type and error messages know.
var typeNames = map[string]bson.Type{
	"double": bson.TypeDouble, "string": bson.TypeString, "object": bson.TypeEmbeddedDocument,
	"array": bson.TypeArray, "binData": bson.TypeBinary, "undefined": bson.TypeUndefined,
	"objectId": bson.TypeObjectID, "bool": bson.TypeBoolean, "date": bson.TypeDateTime,
	"null": bson.TypeNull, "regex": bson.TypeRegex, "dbPointer": bson.TypeDBPointer,
	"javascript": bson.TypeJavaScript, "symbol": bson.TypeSymbol,
	"javascriptWithScope": bson.TypeCodeWithScope, "int": bson.TypeInt32,
	"timestamp": bson.TypeTimestamp, "long": bson.TypeInt64, "decimal": bson.TypeDecimal128,
	"minKey": bson.TypeMinKey, "maxKey": bson.TypeMaxKey,
}

func typeName(t bson.Type) string {
	for name, u := range typeNames {
		if t == u {
			return name
		}
	}
	return "missing"
}

func parseType(path string, v bson.RawValue, _ []byte) []*Node {
	var types []bson.Type
	names := []bson.RawValue{v}
	if v.Type == bson.TypeArray {
		names = value.Elements(v.Value)
	}
	for _, name := range names {
		types = append(types, parseTypeName(name)...)
	}
	parses(types != nil, "%s must match at least one type", path)
	return test(OpType, path, func(v bson.RawValue) bool { return slices.Contains(types, v.Type) })
}

func parseTypeName(v bson.RawValue) []bson.Type {
	if name, ok := v.StringValueOK(); ok {
		if name == "number" {
			return []bson.Type{bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128}
		}
		t, ok := typeNames[name]
		need(ok, "Unknown type name alias: %s", name)
		return []bson.Type{t}
	}
	number := value.ClassOf(v.Type) == value.ClassNumber
	check(number, mongoerr.TypeMismatch, "type must be represented as a number or a string")
	code, ok := wholeNumber(v)
	need(ok && (code >= -1 && code <= 19 && code != 0 || code == math.MaxInt8), "Invalid numerical type code: %s", v)
	return []bson.Type{bson.Type(code)}
}
