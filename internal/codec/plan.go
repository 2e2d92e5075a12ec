package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// A plan is how a struct is stored: what its struct tags say, read once. Encoding, decoding and comparing
// walk it from field to field, by the offsets of the fields in memory.
//
// Every send, claim and end of a task, and every decision, writes or reads such documents, thousands a
// second. The driver's codecs walk the types by reflection for each of them, which cost a third of a
// worker's processor time. What comes out is what the driver makes of the struct tags with [Registry],
// and a test compares the two.
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
	zeroer   bool    // it says itself whether it says nothing
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
	kindOther // the driver's
)

var (
	taskPlan    = taskColumns.must(reflect.TypeFor[model.Task]())
	stepPlan    = taskColumns.must(reflect.TypeFor[model.Step]())
	optionsPlan = taskColumns.must(reflect.TypeFor[model.Options]())
)

// plans are the plans of structs that are not of tasks, by their types; nil = the driver knows more of their
// struct tags.
var plans sync.Map

// planFor is the plan of the struct that v points to, and the place of it; nil = it has none.
func planFor(v any) (plan, unsafe.Pointer) {
	at := reflect.ValueOf(v)
	if at.Kind() != reflect.Pointer || at.IsNil() || at.Type().Elem().Kind() != reflect.Struct {
		return nil, nil
	}
	known, there := plans.Load(at.Type())
	if !there {
		p, _ := columns{}.plan(at.Type().Elem())
		known, _ = plans.LoadOrStore(at.Type(), p)
	}
	p, _ := known.(plan)
	return p, at.UnsafePointer()
}

// sharedTexts are the keys of texts of which a batch has few different ones.
var sharedTexts = []string{
	"", "type", "tenant", "category", "creator", "status", "audience", "exec_id", "worker_id", "fail_kind", "name", "claim_by",
}

// columns reads struct tags.
type columns struct {
	shared []string       // keys of texts, and of lists of texts, that documents share
	within []reflect.Type // the structs around it
}

var taskColumns = columns{shared: sharedTexts}

// must is the plan of a type that has one.
func (c columns) must(t reflect.Type) plan {
	p, ok := c.plan(t)
	if !ok || slices.ContainsFunc(p, column.needsDriver) {
		panic(fmt.Sprintf("codec: the struct tags of %s", t))
	}
	return p
}

// needsDriver reports whether something in the column is left to the driver.
func (c column) needsDriver() bool {
	if c.of != nil {
		return c.of.needsDriver()
	}
	return c.kind == kindOther || slices.ContainsFunc(c.fields, column.needsDriver)
}

// plan reads the struct tags of a type. ok says that all of them are known here.
func (c columns) plan(t reflect.Type) (p plan, ok bool) {
	c.within = append(slices.Clip(c.within), t)
	for i := range t.NumField() {
		f := t.Field(i)
		key, flags, tagged := strings.Cut(f.Tag.Get("bson"), ",")
		if key == "-" {
			continue
		}
		if key == "" || tagged && flags != "omitempty" || !f.IsExported() || f.Anonymous {
			return nil, false
		}
		column := c.column(f.Type, key)
		column.offset, column.optional = f.Offset, tagged && (column.zeroer || f.Type.Kind() != reflect.Struct && f.Type.Kind() != reflect.Array)
		p = append(p, column)
	}
	return p, true
}

var (
	zeroerType = reflect.TypeFor[bson.Zeroer]()
	// ownTypes say themselves how they are stored.
	ownTypes = []reflect.Type{
		reflect.TypeFor[bson.Marshaler](), reflect.TypeFor[bson.ValueMarshaler](), reflect.TypeFor[bson.Unmarshaler](), reflect.TypeFor[bson.ValueUnmarshaler](),
	}
	kinds = map[reflect.Kind]kind{
		reflect.String: kindText, reflect.Int: kindInt, reflect.Int64: kindLong, reflect.Float64: kindFloat, reflect.Bool: kindBool,
	}
)

func (c columns) column(t reflect.Type, key string) column {
	out := column{key: key, start: "\x00" + key + "\x00", typ: t, size: t.Size(), shared: slices.Contains(c.shared, key), zeroer: t.Implements(zeroerType)}
	out.kind = kindOther
	simple, known := kinds[t.Kind()]
	switch {
	case t == reflect.TypeFor[time.Time]():
		out.kind = kindTime
	case t == reflect.TypeFor[time.Duration]():
		out.kind = kindDuration
	case t == reflect.TypeFor[bson.RawValue]():
		out.kind = kindValue
	case slices.ContainsFunc(ownTypes, func(own reflect.Type) bool { return t.Implements(own) || reflect.PointerTo(t).Implements(own) }):
	case known:
		out.kind = simple
	case t.PkgPath() == reflect.TypeFor[bson.D]().PkgPath(), slices.Contains(c.within, t):
	case t.Kind() == reflect.Struct:
		if fields, ok := c.plan(t); ok {
			out.kind, out.fields = kindDocument, fields
		}
	case t.Kind() == reflect.Pointer:
		out.kind, out.of = kindPointer, new(c.column(t.Elem(), key))
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		out.kind, out.of = kindList, new(c.column(t.Elem(), ""))
	}
	return out
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
		return to == nil || c.of.zeroer && c.of.empty(to)
	default:
		return c.otherEmpty(p)
	}
}

// otherEmpty is empty as the driver has it.
func (c *column) otherEmpty(p unsafe.Pointer) bool {
	if c.typ == optionsType {
		return (*model.Options)(p).IsZero()
	}
	v := reflect.NewAt(c.typ, p).Elem()
	if c.zeroer {
		z, _ := v.Interface().(bson.Zeroer)
		return z == nil || z.IsZero()
	}
	switch c.typ.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}

var optionsType = reflect.TypeFor[model.Options]()

// equal reports whether so many bytes at p and q are equal. Then the values are, and it is found out
// in less time than [column.same] takes.
func equal(p, q unsafe.Pointer, size uintptr) bool {
	if size%8 != 0 {
		return false
	}
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
	case kindOther:
		return reflect.DeepEqual(reflect.NewAt(c.typ, p).Elem().Interface(), reflect.NewAt(c.typ, q).Elem().Interface())
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
