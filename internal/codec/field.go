package codec

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// errForm is the error of a field whose form is not the usual one.
var errForm = errors.New("unusual form")

// field is one element after the other of a document or an array. Its methods read it as what it
// is to be.
type field struct {
	kind      bsoncore.Type
	key, data []byte
	rest      []byte // behind the element
	err       error  // [errForm]: one was read as something that it is not, or the document is damaged
}

// fieldsOf stands before the first element of the document.
func fieldsOf(doc []byte) field {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 {
		return field{err: errForm}
	}
	return field{rest: rest[:len(rest)-1]}
}

// next goes on to the next element; false = there is none, or there is an error.
func (f *field) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	end := bytes.IndexByte(f.rest, 0)
	if end < 1 {
		f.err = errForm
		return false
	}
	v, after, ok := bsoncore.ReadValue(f.rest[end+1:], bsoncore.Type(f.rest[0]))
	if !ok {
		f.err = errForm
		return false
	}
	f.kind, f.key, f.data, f.rest = v.Type, f.rest[1:end], v.Data, after
	return true
}

// is notes whether the field has the kind.
func (f *field) is(kind bsoncore.Type) bool {
	if f.kind != kind {
		f.err = errForm
	}
	return f.kind == kind
}

func (f *field) bytes() []byte {
	if !f.is(bsoncore.TypeString) || len(f.data) < 5 {
		f.err = errForm
		return nil
	}
	return f.data[4 : len(f.data)-1]
}

func (f *field) text() string { return string(f.bytes()) }

func (f *field) long() int64 {
	if f.kind == bsoncore.TypeInt32 {
		n, _, _ := bsoncore.ReadInt32(f.data)
		return int64(n)
	}
	if !f.is(bsoncore.TypeInt64) {
		return 0
	}
	n, _, _ := bsoncore.ReadInt64(f.data)
	return n
}

func (f *field) int() int {
	n := f.long()
	if strconv.IntSize == 32 && int64(int32(n)) != n {
		f.err = errForm
	}
	return int(n)
}

func (f *field) duration() time.Duration { return time.Duration(f.long()) * time.Millisecond }

func (f *field) time() time.Time {
	if !f.is(bsoncore.TypeDateTime) {
		return time.Time{}
	}
	ms, _, _ := bsoncore.ReadInt64(f.data)
	return time.UnixMilli(ms).UTC()
}

func (f *field) bool() bool { return f.is(bsoncore.TypeBoolean) && f.data[0] == 1 }

func (f *field) float() float64 {
	if !f.is(bsoncore.TypeDouble) {
		return 0
	}
	x, _, _ := bsoncore.ReadDouble(f.data)
	return x
}

// decoded is a document as the driver reads it, for what few writes have.
func decoded[T any](f *field) *T {
	into := new(T)
	if f.is(bsoncore.TypeEmbeddedDocument) && Decode(f.data, into) != nil {
		f.err = errForm
	}
	return into
}
