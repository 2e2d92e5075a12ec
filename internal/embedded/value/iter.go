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
		it.rest = nil
		return false
	}
	it.Key = it.rest[1:name]
	it.Value = bson.RawValue{Type: bson.Type(it.rest[0]), Value: it.rest[name+1 : end : end]}
	it.elem = it.rest[:end]
	it.rest = it.rest[end:]
	return true
}

// fixed are the sizes of values by type: -1 for those that begin with their
// length, and 0 also for what is no type of a fixed size.
var fixed = [256]int8{
	bson.TypeDouble: 8, bson.TypeDateTime: 8, bson.TypeTimestamp: 8, bson.TypeInt64: 8,
	bson.TypeInt32: 4, bson.TypeBoolean: 1, bson.TypeObjectID: 12, bson.TypeDecimal128: 16,
	bson.TypeString: -1, bson.TypeEmbeddedDocument: -1, bson.TypeArray: -1, bson.TypeBinary: -1,
	bson.TypeJavaScript: -1, bson.TypeSymbol: -1, bson.TypeCodeWithScope: -1,
}

// bounds finds in the element at the head of b the end of its name and its
// own end.
func bounds(b []byte) (name, end int, ok bool) {
	if len(b) < 2 {
		return 0, 0, false
	}
	name = bytes.IndexByte(b, 0)
	if name < 1 {
		return 0, 0, false
	}
	n := int(fixed[b[0]])
	if n <= 0 {
		if n, ok = size(bson.Type(b[0]), b[name+1:]); !ok {
			return 0, 0, false
		}
	}
	end = name + 1 + n
	return name, end, end <= len(b)
}

// size is the length in bytes of the value at the head of b, of a type t that
// has no fixed one.
func size(t bson.Type, b []byte) (int, bool) {
	switch t {
	case bson.TypeNull, bson.TypeUndefined, bson.TypeMinKey, bson.TypeMaxKey:
		return 0, true
	case bson.TypeRegex, bson.TypeDBPointer: // rare; the driver knows them
		v, _, ok := bsoncore.ReadValue(b, bsoncore.Type(t))
		return len(v.Data), ok
	}
	if fixed[t] == 0 || len(b) < 4 {
		return 0, false
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < 0 {
		return 0, false
	}
	switch t {
	case bson.TypeString, bson.TypeJavaScript, bson.TypeSymbol:
		n += 4
	case bson.TypeBinary:
		n += 5
	}
	return n, n >= 4
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
