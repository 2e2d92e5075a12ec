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

// field is one element of a document. Its methods read it as what it is to be; an unusual
// form is noted.
type field struct {
	kind      bsoncore.Type
	key, data []byte
	err       *error
}

// fields calls do for each element of a document. The error is [errForm] when one of them
// was read as something that it is not, or the document is damaged.
func fields(doc []byte, do func(field)) (err error) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 {
		return errForm
	}
	for rest = rest[:len(rest)-1]; len(rest) > 0 && err == nil; {
		end := bytes.IndexByte(rest, 0)
		if end < 1 {
			return errForm
		}
		v, after, ok := bsoncore.ReadValue(rest[end+1:], bsoncore.Type(rest[0]))
		if !ok {
			return errForm
		}
		do(field{kind: v.Type, key: rest[1:end], data: v.Data, err: &err})
		rest = after
	}
	return err
}

// is notes whether the field has the kind.
func (f field) is(kind bsoncore.Type) bool {
	if f.kind != kind {
		*f.err = errForm
	}
	return f.kind == kind
}

func (f field) bytes() []byte {
	if !f.is(bsoncore.TypeString) || len(f.data) < 5 {
		*f.err = errForm
		return nil
	}
	return f.data[4 : len(f.data)-1]
}

func (f field) text() string { return string(f.bytes()) }

func (f field) long() int64 {
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

func (f field) int() int {
	n := f.long()
	if strconv.IntSize == 32 && int64(int32(n)) != n {
		*f.err = errForm
	}
	return int(n)
}

func (f field) duration() time.Duration { return time.Duration(f.long()) * time.Millisecond }

func (f field) time() time.Time {
	if !f.is(bsoncore.TypeDateTime) {
		return time.Time{}
	}
	ms, _, _ := bsoncore.ReadInt64(f.data)
	return time.UnixMilli(ms).UTC()
}

func (f field) bool() bool { return f.is(bsoncore.TypeBoolean) && f.data[0] == 1 }

func (f field) float() float64 {
	if !f.is(bsoncore.TypeDouble) {
		return 0
	}
	x, _, _ := bsoncore.ReadDouble(f.data)
	return x
}

// byDriver is for what few tasks have. The reader of what is wrong with it is the driver.
func (f field) byDriver(into any) {
	if f.is(bsoncore.TypeEmbeddedDocument) && decode(f.data, into) != nil {
		*f.err = errForm
	}
}

func decoded[T any](f field) *T {
	into := new(T)
	f.byDriver(into)
	return into
}

// list is an array; read makes an element of it. It is never nil.
func list[T any](f field, read func(*T, field)) []T {
	out := []T{}
	f.elements(func(e field) {
		out = append(out, *new(T))
		read(&out[len(out)-1], e)
	})
	return out
}

func (f field) document(do func(field)) {
	if f.is(bsoncore.TypeEmbeddedDocument) {
		f.within(do)
	}
}

func (f field) elements(do func(field)) {
	if f.is(bsoncore.TypeArray) {
		f.within(do)
	}
}

func (f field) within(do func(field)) {
	if err := fields(f.data, do); err != nil {
		*f.err = err
	}
}
