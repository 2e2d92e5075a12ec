package value

import (
	"encoding/binary"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Iter walks the elements of a document or array without decoding or
// allocating:
//
//	for it := value.NewIter(doc); it.Next(); {
//		use(it.Key, it.Value)
//	}
type Iter struct {
	Key   []byte        // the field name, or the index in an array; part of the document's memory
	Value bson.RawValue // points into the document's memory
	rest  []byte
	elem  []byte
}

// Element returns the current element as it stands in the document: type,
// name and value.
func (it *Iter) Element() []byte { return it.elem }

// NewIter starts before the first element of doc.
func NewIter(doc []byte) Iter {
	if len(doc) < 5 {
		return Iter{}
	}
	return Iter{rest: doc[4 : len(doc)-1]}
}

// Next moves to the next element and reports whether there was one.
func (it *Iter) Next() bool {
	if len(it.rest) < 2 {
		return false
	}
	t := bson.Type(it.rest[0])
	end := 1
	for end < len(it.rest) && it.rest[end] != 0 {
		end++
	}
	if end == len(it.rest) {
		return false
	}
	it.Key = it.rest[1:end]
	n, ok := size(t, it.rest[end+1:])
	if !ok {
		it.rest = nil
		return false
	}
	it.Value = bson.RawValue{Type: t, Value: it.rest[end+1 : end+1+n : end+1+n]}
	it.elem = it.rest[:end+1+n]
	it.rest = it.rest[end+1+n:]
	return true
}

// size is the length in bytes of the value of type t at the head of b.
func size(t bson.Type, b []byte) (int, bool) {
	n := 0
	switch t {
	case bson.TypeDouble, bson.TypeDateTime, bson.TypeTimestamp, bson.TypeInt64:
		n = 8
	case bson.TypeInt32:
		n = 4
	case bson.TypeBoolean:
		n = 1
	case bson.TypeObjectID:
		n = 12
	case bson.TypeDecimal128:
		n = 16
	case bson.TypeNull, bson.TypeUndefined, bson.TypeMinKey, bson.TypeMaxKey:
	case bson.TypeString, bson.TypeEmbeddedDocument, bson.TypeArray, bson.TypeBinary,
		bson.TypeJavaScript, bson.TypeSymbol, bson.TypeCodeWithScope:
		if len(b) < 4 {
			return 0, false
		}
		n = int(int32(binary.LittleEndian.Uint32(b)))
		switch t {
		case bson.TypeString, bson.TypeJavaScript, bson.TypeSymbol:
			n += 4
		case bson.TypeBinary:
			n += 5
		}
		if n < 4 {
			return 0, false
		}
	default: // regex and dbPointer are rare; the driver knows them
		v, _, ok := bsoncore.ReadValue(b, bsoncore.Type(t))
		return len(v.Data), ok
	}
	return n, n <= len(b)
}

// Lookup returns the value of doc's own field key (no dots), and whether doc
// has it.
func Lookup(doc []byte, key string) (bson.RawValue, bool) {
	for it := NewIter(doc); it.Next(); {
		if string(it.Key) == key {
			return it.Value, true
		}
	}
	return bson.RawValue{}, false
}

// IsObject reports whether v holds elements: a document or an array.
func IsObject(v bson.RawValue) bool {
	return v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray
}

// AppendElement appends key and v as an element of a document.
func AppendElement(dst []byte, key string, v bson.RawValue) []byte {
	dst = append(dst, byte(v.Type))
	dst = append(dst, key...)
	dst = append(dst, 0)
	return append(dst, v.Value...)
}

// Array builds an array value of vs.
func Array(vs []bson.RawValue) bson.RawValue {
	n := 5
	for _, v := range vs {
		n += len(v.Value) + 6
	}
	at, dst := bsoncore.AppendArrayStart(make([]byte, 0, n))
	for i, v := range vs {
		dst = append(dst, byte(v.Type))
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, 0)
		dst = append(dst, v.Value...)
	}
	return bson.RawValue{Type: bson.TypeArray, Value: End(dst, at)}
}

// Begin starts a document at the end of dst; append elements, then call End.
func Begin(dst []byte) (at int32, out []byte) { return bsoncore.AppendDocumentStart(dst) }

// End completes the document that Begin started at at.
func End(dst []byte, at int32) []byte {
	dst = append(dst, 0)
	return bsoncore.UpdateLength(dst, at, int32(len(dst))-at)
}

// Document makes a value of a document.
func Document(doc bson.Raw) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
}

// Int32 makes a value.
func Int32(n int32) bson.RawValue {
	return bson.RawValue{Type: bson.TypeInt32, Value: binary.LittleEndian.AppendUint32(nil, uint32(n))}
}

// Int64 makes a value.
func Int64(n int64) bson.RawValue {
	return bson.RawValue{Type: bson.TypeInt64, Value: binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

// Double makes a value.
func Double(f float64) bson.RawValue {
	return bson.RawValue{Type: bson.TypeDouble, Value: bsoncore.AppendDouble(nil, f)}
}

// String makes a value.
func String(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(nil, s)}
}

// Null and Undefined are the values of a missing field and of an empty array
// in an index; MinKey and MaxKey bound every other value.
var (
	Null      = bson.RawValue{Type: bson.TypeNull}
	Undefined = bson.RawValue{Type: bson.TypeUndefined}
	MinKey    = bson.RawValue{Type: bson.TypeMinKey}
	MaxKey    = bson.RawValue{Type: bson.TypeMaxKey}
)
