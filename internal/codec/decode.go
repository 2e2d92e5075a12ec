package codec

import (
	"bytes"
	"reflect"
	"time"
	"unsafe"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/model"
)

// A TaskReader decodes the documents of a batch. Tasks of a batch have much in common, so
// their types, tenants, workers and audiences become the same strings.
//
// The zero value is ready. It is for one batch, by one goroutine: it remembers every name
// it has read.
type TaskReader struct {
	apart     bool // values share no memory
	names     map[string]string
	audiences map[string][]string
	last      string // the last text that was not shared
	room      []byte // for values, which tasks share only where they are small
}

// Values of many tasks share pieces of memory of roomBytes. One of more than apartBytes
// gets its own: a task that is held for hours must not keep the arguments of others.
const (
	roomBytes  = 16 << 10
	apartBytes = 1 << 10
)

// Read decodes the document of a task. raw may be used again afterwards: nothing of it is
// kept. Fields that this release does not know are left out.
func (r *TaskReader) Read(raw bson.Raw) (*model.Task, error) {
	t := &model.Task{}
	if err := r.task(t, raw); err == nil {
		return t, nil
	}
	// Not as this project writes it: by hand, by a tool, or damaged. The driver knows all
	// forms of a number, and how to say what is wrong.
	t = &model.Task{}
	if err := readByDriver(raw, t); err != nil {
		return nil, err
	}
	return t, nil
}

var registry = Registry()

// Decode decodes a document as the driver does with [Registry]. raw may be used again afterwards.
func Decode(raw []byte, into any) error {
	if p, at := planFor(into); p != nil {
		r := TaskReader{apart: true}
		if r.document(p, at, raw) == nil {
			return nil
		}
	}
	return readByDriver(raw, into)
}

func readByDriver(raw []byte, into any) error {
	dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	dec.SetRegistry(registry)
	return dec.Decode(into) //nolint:wrapcheck // the caller says what was read
}

func (r *TaskReader) task(t *model.Task, raw []byte) error {
	return r.document(taskPlan, unsafe.Pointer(t), raw)
}

// document decodes a document into the struct at p.
func (r *TaskReader) document(p plan, at unsafe.Pointer, raw []byte) error {
	next := 0
	f := fieldsOf(raw)
	for f.next() {
		if c := p.find(f.key, &next); c != nil {
			r.read(c, unsafe.Add(at, c.offset), &f)
		}
	}
	return f.err
}

// read decodes a field into the value at p.
func (r *TaskReader) read(c *column, p unsafe.Pointer, f *field) {
	switch c.kind {
	case kindText:
		*(*string)(p) = r.text(f.bytes(), c.shared)
	case kindInt:
		*(*int)(p) = f.int()
	case kindLong:
		*(*int64)(p) = f.long()
	case kindFloat:
		*(*float64)(p) = f.float()
	case kindBool:
		*(*bool)(p) = f.bool()
	case kindTime:
		*(*time.Time)(p) = f.time()
	case kindDuration:
		*(*time.Duration)(p) = f.duration()
	case kindValue:
		*(*bson.RawValue)(p) = r.value(f)
	case kindPointer:
		if f.kind == bsoncore.TypeNull {
			*(*unsafe.Pointer)(p) = nil
			return
		}
		to := reflect.New(c.of.typ).UnsafePointer()
		*(*unsafe.Pointer)(p) = to
		r.read(c.of, to, f)
	case kindList:
		if f.kind == bsoncore.TypeNull {
			*(*[]struct{})(p) = nil
		} else if f.is(bsoncore.TypeArray) {
			f.err = r.list(c, p, f.data)
		}
	case kindOther:
		f.err = c.readByDriver(p, f)
	default:
		if f.is(bsoncore.TypeEmbeddedDocument) {
			f.err = r.document(c.fields, p, f.data)
		}
	}
}

// readByDriver decodes a field into the value at p as the driver does.
func (c *column) readByDriver(p unsafe.Pointer, f *field) error {
	start, doc := bsoncore.AppendDocumentStart(make([]byte, 0, len(f.data)+8))
	doc = closed(append(bsoncore.AppendHeader(doc, f.kind, ""), f.data...), start)
	fields, err := bson.NewDocumentReader(bytes.NewReader(doc)).ReadDocument()
	if err != nil {
		return errForm
	}
	_, value, err := fields.ReadElement()
	if err != nil {
		return errForm
	}
	decoder, err := registry.LookupDecoder(c.typ)
	if err != nil || decoder.DecodeValue(bson.DecodeContext{Registry: registry}, value, reflect.NewAt(c.typ, p).Elem()) != nil {
		return errForm // the driver says what is wrong, when it decodes all
	}
	return nil
}

// list decodes an array. An empty one is not nil. Tasks with equal audiences have the same slice:
// the rules never change it in place.
func (r *TaskReader) list(c *column, p unsafe.Pointer, raw []byte) error {
	if c.shared {
		if known, ok := r.audiences[string(raw)]; ok {
			*(*[]string)(p) = known
			return nil
		}
	}
	n := 0
	for f := fieldsOf(raw); f.next(); {
		n++
	}
	var room unsafe.Pointer
	if n == 1 { // mostly; this allocates once, and the other twice
		room = reflect.New(c.of.typ).UnsafePointer()
	} else {
		room = reflect.MakeSlice(c.typ, n, n).UnsafePointer()
	}
	*(*[]struct{})(p) = unsafe.Slice((*struct{})(room), n)
	f := fieldsOf(raw)
	for i := 0; f.next(); i++ {
		r.read(c.of, c.element(p, i), &f)
	}
	if c.shared {
		if r.audiences == nil {
			r.audiences = map[string][]string{}
		}
		r.audiences[string(raw)] = *(*[]string)(p)
	}
	return f.err
}

// text is a text. One that other tasks of the batch have, too, is kept once for all of them. One
// that ends the text before it is a part of that: so the key, which mostly ends the id, is not kept
// twice.
func (r *TaskReader) text(b []byte, shared bool) string {
	if !shared {
		if n := len(r.last) - len(b); n < 0 || r.last[n:] != string(b) {
			r.last = string(b)
		} else {
			return r.last[n:]
		}
		return r.last
	}
	if s, known := r.names[string(b)]; known {
		return s
	}
	if r.names == nil {
		r.names = map[string]string{}
	}
	s := string(b)
	r.names[s] = s
	return s
}

// value is a copy of a value.
func (r *TaskReader) value(f *field) bson.RawValue {
	n := len(f.data)
	if r.apart || n > apartBytes {
		return bson.RawValue{Type: bson.Type(f.kind), Value: bytes.Clone(f.data)}
	}
	if len(r.room)+n > cap(r.room) {
		r.room = make([]byte, 0, roomBytes)
	}
	at := len(r.room)
	r.room = append(r.room, f.data...)
	return bson.RawValue{Type: bson.Type(f.kind), Value: r.room[at : at+n : at+n]}
}
