package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// A plan is how a struct of package model is stored: what its struct tags say, read once when the
// process starts. Encoding, decoding and comparing walk it from field to field, by the offsets of
// the fields in memory.
//
// Every send, claim and end of a task writes or reads such a document, thousands a second. The
// driver's codecs walk the types by reflection for each of them, which cost a third of a worker's
// processor time. What comes out is what the driver makes of the struct tags with [Registry], and
// a test compares the two.
//
// The offsets need package unsafe. With reflect.Value.Field in their place, and no allocation more,
// reading a batch takes 10 to 20 % more time (BenchmarkReadABatch): too much for the hot path.
type plan []column

// column is one field of a struct, or what a pointer points to, or the elements of a list.
type column struct {
	offset   uintptr
	size     uintptr
	kind     kind
	optional bool    // left out while it says nothing
	shared   bool    // tasks of a batch mostly have equal ones, see [TaskReader]
	key      string  // "" for the elements of a list
	start    string  // of its element without a prefix: a place for the type, the key and a zero
	of       *column // of a pointer or a list
	fields   plan    // of a document
	typ      reflect.Type
}

type kind uint8

const (
	kindText kind = iota
	kindInt
	kindLong
	kindFloat
	kindBool
	kindTime
	kindDuration
	kindValue
	kindDocument
	kindPointer
	kindList
)

var (
	taskPlan    = planOf(reflect.TypeFor[model.Task]())
	stepPlan    = planOf(reflect.TypeFor[model.Step]())
	optionsPlan = planOf(reflect.TypeFor[model.Options]())
)

// sharedTexts are the keys of texts of which a batch has few different ones.
var sharedTexts = []string{
	"", "type", "tenant", "category", "creator", "status", "audience", "exec_id", "worker_id", "fail_kind", "name", "claim_by",
}

// planOf reads the struct tags of a type. It panics for a field that cannot be stored.
func planOf(t reflect.Type) plan {
	p := make(plan, t.NumField())
	for i := range p {
		f := t.Field(i)
		key, flags, tagged := strings.Cut(f.Tag.Get("bson"), ",")
		if key == "" || tagged && flags != "omitempty" {
			panic(fmt.Sprintf("codec: the struct tag of %s.%s", t, f.Name))
		}
		p[i] = columnOf(f.Type, key)
		p[i].offset, p[i].optional = f.Offset, tagged
	}
	return p
}

func columnOf(t reflect.Type, key string) column {
	c := column{key: key, start: "\x00" + key + "\x00", typ: t, size: t.Size(), shared: slices.Contains(sharedTexts, key)}
	switch {
	case t == reflect.TypeFor[time.Time]():
		c.kind = kindTime
	case t == reflect.TypeFor[time.Duration]():
		c.kind = kindDuration
	case t == reflect.TypeFor[bson.RawValue]():
		c.kind = kindValue
	case t.Kind() == reflect.Struct:
		c.kind, c.fields = kindDocument, planOf(t)
	case t.Kind() == reflect.Pointer:
		c.kind, c.of = kindPointer, new(columnOf(t.Elem(), key))
	case t.Kind() == reflect.Slice:
		c.kind, c.of = kindList, new(columnOf(t.Elem(), ""))
	default:
		kinds := map[reflect.Kind]kind{
			reflect.String: kindText, reflect.Int: kindInt, reflect.Int64: kindLong, reflect.Float64: kindFloat, reflect.Bool: kindBool,
		}
		var known bool
		if c.kind, known = kinds[t.Kind()]; !known {
			panic(fmt.Sprintf("codec: the type of %s, %s", key, t))
		}
	}
	return c
}

// find is the column of that key; nil = there is none. Documents mostly have their fields in the
// order of the plan, so it looks first at what follows the last one that was found.
func (p plan) find(key []byte, next *int) *column {
	for n := range p {
		i := *next + n
		if i >= len(p) {
			i -= len(p)
		}
		if c := &p[i]; c.key == string(key) {
			*next = i + 1
			return c
		}
	}
	return nil
}

// column is the column of a key that is there.
func (p plan) column(key string) *column {
	var next int
	return p.find([]byte(key), &next)
}

// element is the place of element i of the list at p.
func (c *column) element(p unsafe.Pointer, i int) unsafe.Pointer {
	list := unsafe.SliceData(*(*[]struct{})(p))
	return unsafe.Add(unsafe.Pointer(list), uintptr(i)*c.of.size)
}

// length is that of the list at p.
func length(p unsafe.Pointer) int { return len(*(*[]struct{})(p)) }

// empty reports whether the value at p says nothing.
func (c *column) empty(p unsafe.Pointer) bool {
	switch c.kind {
	case kindText:
		return *(*string)(p) == ""
	case kindInt:
		return *(*int)(p) == 0
	case kindLong, kindDuration:
		return *(*int64)(p) == 0
	case kindFloat:
		return *(*float64)(p) == 0
	case kindBool:
		return !*(*bool)(p)
	case kindTime:
		return (*time.Time)(p).IsZero()
	case kindValue:
		return (*bson.RawValue)(p).Type == 0
	case kindList:
		return length(p) == 0
	case kindPointer:
		to := *(*unsafe.Pointer)(p)
		return to == nil || c.of.typ == optionsType && c.of.empty(to)
	default:
		return c.typ == optionsType && (*model.Options)(p).IsZero()
	}
}

// optionsType is the only document that is left out while it says nothing.
var optionsType = reflect.TypeFor[model.Options]()

// equal reports whether so many bytes at p and q are equal. Then the values are, and it is found out
// in less time than [column.same] takes.
func equal(p, q unsafe.Pointer, size uintptr) bool {
	for at := uintptr(0); at < size; at += 8 {
		if *(*uint64)(unsafe.Add(p, at)) != *(*uint64)(unsafe.Add(q, at)) {
			return false
		}
	}
	return size >= 8
}

// same reports whether the values at p and q are stored the same. A rule hands on what it does not
// change, so what they point to is mostly the same, too.
func (c *column) same(p, q unsafe.Pointer) bool {
	switch c.kind {
	case kindText:
		return *(*string)(p) == *(*string)(q)
	case kindInt:
		return *(*int)(p) == *(*int)(q)
	case kindLong:
		return *(*int64)(p) == *(*int64)(q)
	case kindDuration:
		return (*time.Duration)(p).Milliseconds() == (*time.Duration)(q).Milliseconds()
	case kindFloat:
		return *(*float64)(p) == *(*float64)(q)
	case kindBool:
		return *(*bool)(p) == *(*bool)(q)
	case kindTime:
		return (*time.Time)(p).Equal(*(*time.Time)(q))
	case kindValue:
		return (*bson.RawValue)(p).Equal(*(*bson.RawValue)(q))
	case kindList:
		return c.sameList(p, q)
	case kindPointer:
		a, b := *(*unsafe.Pointer)(p), *(*unsafe.Pointer)(q)
		return a == b || a != nil && b != nil && c.of.same(a, b)
	default:
		return c.fields.same(p, q)
	}
}

func (c *column) sameList(p, q unsafe.Pointer) bool {
	n := length(p)
	if n != length(q) {
		return false
	}
	if c.element(p, 0) == c.element(q, 0) {
		return true
	}
	for i := range n {
		if !c.of.same(c.element(p, i), c.element(q, i)) {
			return false
		}
	}
	return true
}

// same reports whether the structs at p and q are stored the same.
func (p plan) same(before, after unsafe.Pointer) bool {
	for i := range p {
		c := &p[i]
		if !c.same(unsafe.Add(before, c.offset), unsafe.Add(after, c.offset)) {
			return false
		}
	}
	return true
}
