package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

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

const numberTypes = 1<<bson.TypeDouble | 1<<bson.TypeInt32 | 1<<bson.TypeInt64 | 1<<bson.TypeDecimal128

// typeBit is the bit of a type in a set.
func typeBit(t bson.Type) uint32 {
	switch t {
	case bson.TypeMinKey:
		return 1 << 30
	case bson.TypeMaxKey:
		return 1 << 31
	}
	return 1 << t
}

func parseType(path string, v bson.RawValue, _ []byte) ([]*Node, error) {
	n := leaf(OpType, path, missing)
	if v.Type != bson.TypeArray {
		bits, err := parseTypeName(v)
		n.types = bits
		return []*Node{n}, err
	}
	for it := value.NewIter(v.Value); it.Next(); {
		bits, err := parseTypeName(it.Value)
		if err != nil {
			return nil, err
		}
		n.types |= bits
	}
	if n.types == 0 {
		return nil, mongoerr.New(mongoerr.FailedToParse, "%s must match at least one type", path)
	}
	return []*Node{n}, nil
}

func parseTypeName(v bson.RawValue) (uint32, error) {
	if name, ok := v.StringValueOK(); ok {
		if name == "number" {
			return numberTypes, nil
		}
		t, ok := typeNames[name]
		if !ok {
			return 0, badValue("Unknown type name alias: %s", name)
		}
		return typeBit(t), nil
	}
	if value.ClassOf(v.Type) != value.ClassNumber {
		return 0, mongoerr.New(mongoerr.TypeMismatch, "type must be represented as a number or a string")
	}
	code, ok := wholeNumber(v)
	switch {
	case ok && code >= 1 && code <= 19:
		return 1 << code, nil
	case ok && code == -1:
		return typeBit(bson.TypeMinKey), nil
	case ok && code == 127:
		return typeBit(bson.TypeMaxKey), nil
	}
	return 0, badValue("Invalid numerical type code: %s", v)
}
