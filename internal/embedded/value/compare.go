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

// ClassOf returns the class of type t. A type of zero (no value at all: the
// field is missing) counts as undefined.
func ClassOf(t bson.Type) Class {
	switch t {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return ClassNumber
	case bson.TypeString, bson.TypeSymbol:
		return ClassString
	case bson.TypeEmbeddedDocument:
		return ClassDocument
	case bson.TypeArray:
		return ClassArray
	case bson.TypeNull:
		return ClassNull
	case bson.TypeBinary:
		return ClassBinary
	case bson.TypeObjectID:
		return ClassObjectID
	case bson.TypeBoolean:
		return ClassBoolean
	case bson.TypeDateTime:
		return ClassDate
	case bson.TypeTimestamp:
		return ClassTimestamp
	case bson.TypeRegex:
		return ClassRegex
	case bson.TypeDBPointer:
		return ClassDBPointer
	case bson.TypeJavaScript:
		return ClassCode
	case bson.TypeCodeWithScope:
		return ClassCodeWithScope
	case bson.TypeMinKey:
		return ClassMinKey
	case bson.TypeMaxKey:
		return ClassMaxKey
	}
	return ClassUndefined
}

// Compare orders a and b as MongoDB does: by class, then within the class;
// numbers of all types by their exact values with NaN below all others and
// -0 equal to 0. It is zero for equal values, even of different types
// (1 and 1.0). A zero RawValue compares as undefined.
func Compare(a, b bson.RawValue) int {
	ca, cb := ClassOf(a.Type), ClassOf(b.Type)
	if ca != cb {
		return cmp.Compare(ca, cb)
	}
	x, y := a.Value, b.Value
	switch ca {
	case ClassNumber:
		return compareNumbers(a, b)
	case ClassString, ClassCode:
		return bytes.Compare(text(x), text(y))
	case ClassDocument:
		return compareElements(x, y, true)
	case ClassArray:
		return compareElements(x, y, false)
	case ClassBinary:
		if c := cmp.Compare(len(x), len(y)); c != 0 {
			return c
		}
		return bytes.Compare(x[4:], y[4:]) // the subtype, then the bytes
	case ClassDate:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(x)), int64(binary.LittleEndian.Uint64(y)))
	case ClassTimestamp:
		return cmp.Compare(binary.LittleEndian.Uint64(x), binary.LittleEndian.Uint64(y))
	case ClassObjectID, ClassBoolean, ClassRegex:
		return bytes.Compare(x, y)
	case ClassDBPointer:
		if c := cmp.Compare(len(x), len(y)); c != 0 {
			return c
		}
		return bytes.Compare(x, y)
	case ClassCodeWithScope:
		code, scope := codeWithScope(x)
		code2, scope2 := codeWithScope(y)
		if c := bytes.Compare(code, code2); c != 0 {
			return c
		}
		return compareElements(scope, scope2, true)
	}
	return 0
}

// compareElements compares two documents element by element: class, name
// (unless they are arrays), value.
func compareElements(a, b []byte, names bool) int {
	x, y := NewIter(a), NewIter(b)
	for {
		more, more2 := x.Next(), y.Next()
		switch {
		case !more && !more2:
			return 0
		case !more:
			return -1
		case !more2:
			return 1
		}
		if c := cmp.Compare(ClassOf(x.Value.Type), ClassOf(y.Value.Type)); c != 0 {
			return c
		}
		if names {
			if c := bytes.Compare(x.Key, y.Key); c != 0 {
				return c
			}
		}
		if c := Compare(x.Value, y.Value); c != 0 {
			return c
		}
	}
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

func compareNumbers(a, b bson.RawValue) int {
	i, aInt := integer(a)
	j, bInt := integer(b)
	if aInt && bInt {
		return cmp.Compare(i, j)
	}
	if a.Type == bson.TypeDouble && b.Type == bson.TypeDouble {
		// cmp has NaN below all others and equal to itself, as MongoDB.
		return cmp.Compare(float(a.Value), float(b.Value))
	}
	// Mixed types: the keys are exact, and equal for equal numbers.
	var x, y [64]byte
	return bytes.Compare(appendNumber(x[:0], a), appendNumber(y[:0], b))
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
