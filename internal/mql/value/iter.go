package value

import (
	"bytes"
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
	name, end, ok := bounds(it.rest)
	if !ok {
		return false
	}
	it.Key = it.rest[1:name]
	it.Value = bson.RawValue{Type: bson.Type(it.rest[0]), Value: it.rest[name+1 : end : end]}
	it.elem = it.rest[:end]
	it.rest = it.rest[end:]
	return true
}

// Complete reports, once Next is false, whether that was the end of the
// document: otherwise an element in it is broken.
func (it *Iter) Complete() bool { return len(it.rest) == 0 }

// sizes are the lengths of values by type: of a fixed one, or one of the below.
// 0 is what is no type.
var sizes = [256]int8{
	bson.TypeDouble: 8, bson.TypeDateTime: 8, bson.TypeTimestamp: 8, bson.TypeInt64: 8,
	bson.TypeInt32: 4, bson.TypeBoolean: 1, bson.TypeObjectID: 12, bson.TypeDecimal128: 16,
	bson.TypeNull: empty, bson.TypeUndefined: empty, bson.TypeMinKey: empty, bson.TypeMaxKey: empty,
	bson.TypeEmbeddedDocument: prefixed, bson.TypeArray: prefixed, bson.TypeCodeWithScope: prefixed,
	bson.TypeString: prefixed + 4, bson.TypeJavaScript: prefixed + 4, bson.TypeSymbol: prefixed + 4,
	bson.TypeBinary: prefixed + 5, bson.TypeRegex: rare, bson.TypeDBPointer: rare,
}

const (
	empty    = -1
	rare     = -2  // the driver knows
	prefixed = -10 // begins with its length; above, that many bytes are not counted in it
)

// bounds finds in the element at the head of b the end of its name and its
// own end.
func bounds(b []byte) (name, end int, ok bool) {
	if name = bytes.IndexByte(b, 0); name < 1 {
		return 0, 0, false
	}
	at := name + 1
	switch n := int(sizes[b[0]]); {
	case n > 0:
		end = at + n
	case n == empty:
		end = at
	case n == rare:
		v, _, ok := bsoncore.ReadValue(b[at:], bsoncore.Type(b[0]))
		return name, at + len(v.Data), ok
	case n == 0 || len(b) < at+4:
		return 0, 0, false
	default:
		length := int(int32(binary.LittleEndian.Uint32(b[at:])))
		if end = at + length + n - prefixed; length < 0 || end < at+4 {
			return 0, 0, false
		}
	}
	return name, end, end <= len(b)
}

// Lookup returns the value of doc's own field key (no dots), and whether doc
// has it.
func Lookup(doc []byte, key string) (bson.RawValue, bool) {
	b := NewIter(doc).rest
	for {
		name, end, ok := bounds(b)
		if !ok {
			return bson.RawValue{}, false
		}
		if name == len(key)+1 && string(b[1:name]) == key {
			return bson.RawValue{Type: bson.Type(b[0]), Value: b[name+1 : end : end]}, true
		}
		b = b[end:]
	}
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

// Elements are the values in a document or array.
func Elements(doc []byte) []bson.RawValue {
	vs := make([]bson.RawValue, 0, 8)
	for it := NewIter(doc); it.Next(); {
		vs = append(vs, it.Value)
	}
	return vs
}

// Array builds an array value of vs.
func Array(vs []bson.RawValue) bson.RawValue {
	n := 5
	for _, v := range vs {
		n += len(v.Value) + 6
	}
	at, dst := Begin(make([]byte, 0, n))
	for i, v := range vs {
		dst = AppendElement(dst, strconv.Itoa(i), v)
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
// in an index.
var (
	Null      = bson.RawValue{Type: bson.TypeNull}
	Undefined = bson.RawValue{Type: bson.TypeUndefined}
)
