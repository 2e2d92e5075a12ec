package embedded

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// docBuilder writes one document, element by element.
type docBuilder struct {
	b   []byte
	at  int32
	sub []int32 // starts of the documents and arrays that are open
	n   int     // elements, for who counts them
}

func newDoc() *docBuilder {
	d := &docBuilder{b: make([]byte, 0, 256)}
	d.reset()
	return d
}

// reset begins anew in the same memory.
func (d *docBuilder) reset() { d.at, d.b = bsoncore.AppendDocumentStart(d.b[:0]) }

func (d *docBuilder) int32(key string, n int) *docBuilder {
	d.b = bsoncore.AppendInt32Element(d.b, key, int32(n))
	return d
}

func (d *docBuilder) int64(key string, n int64) *docBuilder {
	d.b = bsoncore.AppendInt64Element(d.b, key, n)
	return d
}

func (d *docBuilder) string(key, s string) *docBuilder {
	d.b = bsoncore.AppendStringElement(d.b, key, s)
	return d
}

func (d *docBuilder) bool(key string, v bool) *docBuilder {
	d.b = bsoncore.AppendBooleanElement(d.b, key, v)
	return d
}

func (d *docBuilder) timestamp(key string, ts bson.Timestamp) *docBuilder {
	d.b = bsoncore.AppendTimestampElement(d.b, key, ts.T, ts.I)
	return d
}

func (d *docBuilder) doc(key string, doc []byte) *docBuilder {
	d.b = bsoncore.AppendDocumentElement(d.b, key, doc)
	return d
}

func (d *docBuilder) null(key string) {
	d.b = bsoncore.AppendNullElement(d.b, key)
}

func (d *docBuilder) value(key string, v bson.RawValue) *docBuilder {
	d.b = bsoncore.AppendHeader(d.b, bsoncore.Type(v.Type), key)
	d.b = append(d.b, v.Value...)
	return d
}

// any writes a value of a Go type the driver can encode.
func (d *docBuilder) any(key string, v any) *docBuilder {
	t, b, err := bson.MarshalValue(v)
	if err != nil {
		panic(err) // only for values of this package
	}
	return d.value(key, bson.RawValue{Type: t, Value: b})
}

// openDoc and openArray begin a nested value, which close ends.
func (d *docBuilder) openDoc(key string) *docBuilder {
	var at int32
	at, d.b = bsoncore.AppendDocumentElementStart(d.b, key)
	d.sub = append(d.sub, at)
	return d
}

func (d *docBuilder) openArray(key string) *docBuilder {
	var at int32
	at, d.b = bsoncore.AppendArrayElementStart(d.b, key)
	d.sub = append(d.sub, at)
	return d
}

func (d *docBuilder) close() *docBuilder {
	at := d.sub[len(d.sub)-1]
	d.sub = d.sub[:len(d.sub)-1]
	d.b = append(d.b, 0)
	d.b = bsoncore.UpdateLength(d.b, at, int32(len(d.b))-at)
	return d
}

// arrayOf appends the elements of list as an array, if there are any.
func (d *docBuilder) arrayOf(key string, list *docBuilder) *docBuilder {
	if list.n > 0 {
		d.b = bsoncore.AppendArrayElement(d.b, key, bsoncore.Document(list.end()))
	}
	return d
}

// elements appends all elements of a document; nil has none.
func (d *docBuilder) elements(doc bson.Raw) *docBuilder {
	if doc != nil {
		d.b = append(d.b, doc[4:len(doc)-1]...)
	}
	return d
}

func (d *docBuilder) end() bson.Raw {
	d.b = append(d.b, 0)
	d.b = bsoncore.UpdateLength(d.b, d.at, int32(len(d.b))-d.at)
	return d.b
}

// emptyHash stands for the signature of a cluster time, which only servers with
// authentication make.
var emptyHash = make([]byte, 20)

// finish adds what every reply ends with.
func (s *Server) finish(d *docBuilder, ok float64) []byte {
	d.b = bsoncore.AppendDoubleElement(d.b, "ok", ok)
	now := s.store.ClusterTime()
	d.openDoc("$clusterTime").timestamp("clusterTime", now).openDoc("signature")
	d.b = bsoncore.AppendBinaryElement(d.b, "hash", 0, emptyHash)
	d.int64("keyId", 0).close().close()
	return d.timestamp("operationTime", now).end()
}

func (s *Server) errorReply(err error) []byte {
	e := asMongo(err)
	d := newDoc().string("errmsg", e.Message).int32("code", int(e.Code)).string("codeName", e.Name)
	if len(e.Labels) > 0 {
		d.any("errorLabels", e.Labels)
	}
	return s.finish(d.elements(e.Details), 0)
}

func asMongo(err error) *mongoerr.Error {
	if e := (*mongoerr.Error)(nil); errors.As(err, &e) {
		return e
	}
	return mongoerr.New(mongoerr.InternalError, "%v", err)
}
