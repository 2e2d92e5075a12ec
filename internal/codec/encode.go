package codec

import (
	"bytes"
	"math"
	"reflect"
	"time"
	"unsafe"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/model"
)

// AppendTask appends the task's document to dst: what is stored of it, and nothing that
// was not set.
func AppendTask(dst []byte, t *model.Task) []byte { return taskPlan.append(dst, unsafe.Pointer(t)) }

// AppendStep appends the document of a step to dst.
func AppendStep(dst []byte, s *model.Step) []byte { return stepPlan.append(dst, unsafe.Pointer(s)) }

// Encode encodes a struct, to which v points, as the driver does with [Registry].
func Encode(v any) (bson.Raw, error) {
	if p, at := planFor(v); p != nil {
		if doc := p.append(make([]byte, 0, documentBytes), at); doc != nil {
			return doc, nil
		}
	}
	return writeByDriver(v)
}

// documentBytes is about the size of a small document.
const documentBytes = 512

func writeByDriver(v any) (bson.Raw, error) {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(registry)
	err := enc.Encode(v)
	return buf.Bytes(), err //nolint:wrapcheck // the caller says what was written
}

// nothing is what most optional fields of a document hold.
var nothing = new([512]byte)

// append appends the document of the struct at p; nil = something in it cannot be stored, which the driver
// explains.
func (p plan) append(dst []byte, at unsafe.Pointer) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	for i := range p {
		c := &p[i]
		v := unsafe.Add(at, c.offset)
		if c.optional && (c.size <= unsafe.Sizeof(*nothing) && equal(v, unsafe.Pointer(nothing), c.size) || c.empty(v)) {
			continue
		}
		if dst = c.append(dst, "", v); dst == nil {
			return nil
		}
	}
	return closed(dst, start)
}

// append appends the value at p as an element, or returns nil as [plan.append] does. prefix is in front of
// its key.
func (c *column) append(dst []byte, prefix string, p unsafe.Pointer) []byte {
	switch c.kind {
	case kindText:
		return bsoncore.AppendString(c.head(dst, bsoncore.TypeString, prefix), *(*string)(p))
	case kindInt:
		n := *(*int)(p)
		if n < math.MinInt32 || n > math.MaxInt32 {
			return bsoncore.AppendInt64(c.head(dst, bsoncore.TypeInt64, prefix), int64(n))
		}
		return bsoncore.AppendInt32(c.head(dst, bsoncore.TypeInt32, prefix), int32(n))
	case kindLong:
		return bsoncore.AppendInt64(c.head(dst, bsoncore.TypeInt64, prefix), *(*int64)(p))
	case kindFloat:
		return bsoncore.AppendDouble(c.head(dst, bsoncore.TypeDouble, prefix), *(*float64)(p))
	case kindBool:
		return bsoncore.AppendBoolean(c.head(dst, bsoncore.TypeBoolean, prefix), *(*bool)(p))
	case kindTime:
		return bsoncore.AppendDateTime(c.head(dst, bsoncore.TypeDateTime, prefix), (*time.Time)(p).UnixMilli())
	case kindDuration:
		return bsoncore.AppendInt64(c.head(dst, bsoncore.TypeInt64, prefix), (*time.Duration)(p).Milliseconds())
	case kindValue:
		v := (*bson.RawValue)(p)
		if v.Type == 0 {
			return nil
		}
		return append(c.head(dst, bsoncore.Type(v.Type), prefix), v.Value...)
	case kindPointer:
		if *(*unsafe.Pointer)(p) == nil {
			return c.head(dst, bsoncore.TypeNull, prefix)
		}
		return c.of.append(dst, prefix, *(*unsafe.Pointer)(p))
	case kindList:
		if *(*[]struct{})(p) == nil {
			return c.head(dst, bsoncore.TypeNull, prefix)
		}
		start, dst := bsoncore.AppendDocumentStart(c.head(dst, bsoncore.TypeArray, prefix))
		for i := range length(p) {
			if dst = c.of.append(dst, Index(i), c.element(p, i)); dst == nil {
				return nil
			}
		}
		return closed(dst, start)
	case kindOther:
		raw, err := writeByDriver(bson.D{{Value: reflect.NewAt(c.typ, p).Elem().Interface()}})
		if err != nil {
			return nil
		}
		value := raw[4 : len(raw)-1] // its type, the end of its empty key, what follows
		return append(c.head(dst, bsoncore.Type(value[0]), prefix), value[2:]...)
	default:
		return c.fields.append(c.head(dst, bsoncore.TypeEmbeddedDocument, prefix), p)
	}
}

// head begins an element.
func (c *column) head(dst []byte, t bsoncore.Type, prefix string) []byte {
	if prefix == "" {
		at := len(dst)
		dst = append(dst, c.start...)
		dst[at] = byte(t)
		return dst
	}
	return append(append(append(dst, byte(t)), prefix...), c.start[1:]...)
}

// closed ends the document or array that began at start. It cannot fail: start is where
// one began.
func closed(dst []byte, start int32) []byte {
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}
