package value

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Class is the group of types a value compares within: MongoDB orders values
// of different classes by class alone, and a range ($lt) never leaves its
// class.
type Class uint8

// The classes in their order. The numbers are also the first byte of a key
// (AppendKey); 0 is left to mark the end of a document or array there.
const (
	ClassMinKey Class = 16 + 8*iota
	ClassUndefined
	ClassNull
	ClassNumber
	ClassString // and symbol
	ClassDocument
	ClassArray
	ClassBinary
	ClassObjectID
	ClassBoolean
	ClassDate
	ClassTimestamp
	ClassRegex
	ClassDBPointer
	ClassCode
	ClassCodeWithScope
	ClassMaxKey
)

var classes = [256]Class{
	bson.TypeInt32: ClassNumber, bson.TypeInt64: ClassNumber, bson.TypeDouble: ClassNumber,
	bson.TypeDecimal128: ClassNumber, bson.TypeString: ClassString, bson.TypeSymbol: ClassString,
	bson.TypeEmbeddedDocument: ClassDocument, bson.TypeArray: ClassArray, bson.TypeNull: ClassNull,
	bson.TypeBinary: ClassBinary, bson.TypeObjectID: ClassObjectID, bson.TypeBoolean: ClassBoolean,
	bson.TypeDateTime: ClassDate, bson.TypeTimestamp: ClassTimestamp, bson.TypeRegex: ClassRegex,
	bson.TypeDBPointer: ClassDBPointer, bson.TypeJavaScript: ClassCode,
	bson.TypeCodeWithScope: ClassCodeWithScope, bson.TypeMinKey: ClassMinKey, bson.TypeMaxKey: ClassMaxKey,
}

// ClassOf returns the class of type t. A type of zero (no value at all: the
// field is missing) counts as undefined.
func ClassOf(t bson.Type) Class { return cmp.Or(classes[t], ClassUndefined) }

// Compare orders a and b as MongoDB does: by class, then within the class;
// numbers of all types by their exact values with NaN below all others and
// -0 equal to 0. It is zero for equal values, even of different types
// (1 and 1.0). A zero RawValue compares as undefined.
//
// The order is that of the keys (AppendKey). What is compared most often
// needs none.
func Compare(a, b bson.RawValue) int {
	class := ClassOf(a.Type)
	if c := cmp.Compare(class, ClassOf(b.Type)); c != 0 {
		return c
	}
	switch class {
	case ClassNumber:
		i, aInt := integer(a)
		j, bInt := integer(b)
		if aInt && bInt {
			return cmp.Compare(i, j)
		}
	case ClassString:
		return bytes.Compare(text(a.Value), text(b.Value))
	case ClassDocument, ClassArray, ClassCodeWithScope:
		return bytes.Compare(appendBody(nil, class, a), appendBody(nil, class, b))
	}
	var x, y [64]byte // these stay on the stack
	return bytes.Compare(appendScalar(x[:0], class, a), appendScalar(y[:0], class, b))
}

// Equal reports whether Compare(a, b) is zero.
func Equal(a, b bson.RawValue) bool { return Compare(a, b) == 0 }

// Identical reports whether a and b are the same bytes of the same type.
func Identical(a, b bson.RawValue) bool {
	return a.Type == b.Type && bytes.Equal(a.Value, b.Value)
}

// text is the bytes of a string, symbol or code value.
func text(v []byte) []byte {
	if len(v) < 5 {
		return nil
	}
	return v[4 : len(v)-1]
}

func codeWithScope(v []byte) (code, scope []byte) {
	if len(v) < 8 {
		return nil, nil
	}
	n := int(binary.LittleEndian.Uint32(v[4:])) + 8
	if n < 8 || n > len(v) {
		return nil, nil
	}
	return text(v[4:n]), v[n:]
}

// integer returns the value of an int32 or int64.
func integer(v bson.RawValue) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32:
		return int64(int32(binary.LittleEndian.Uint32(v.Value))), true
	case bson.TypeInt64:
		return int64(binary.LittleEndian.Uint64(v.Value)), true
	}
	return 0, false
}

func float(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
