package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Read reads a file of YAML, or of JSON, which is YAML too: documents, each one form or a list
// of them. The error joins all that is wrong, each a [*FieldError]; thing and things are what the
// forms are called in it. In a file of types, durations without a unit have that of seed 000.
func Read[T any](file string, data []byte, thing, things string) ([]Doc[T], error) {
	roots, err := parseYAML(data)
	if err != nil {
		return nil, inFile(file, err)
	}
	var docs []Doc[T]
	b := &binder{file: file, thing: thing, units: reflect.TypeFor[T]() == reflect.TypeFor[Type]()}
	for _, root := range roots {
		each := []*node{root}
		if root.kind == list {
			each = root.items
		}
		for _, n := range each {
			docs = append(docs, bindDoc[T](b, n))
		}
	}
	if len(docs) == 0 {
		return nil, &FieldError{File: file, place: place{1, 1}, Reason: "there are no " + things}
	}
	return docs, errors.Join(b.mistakes...)
}

// ReadJSON reads one JSON object, which begins at a line of a file; see [Read].
func ReadJSON[T any](file string, line int, data []byte, thing string) (Doc[T], error) {
	root, text, err := parseJSON(data, line, reflect.TypeFor[T]())
	if err != nil {
		return Doc[T]{}, inFile(file, err)
	}
	b := &binder{file: file, thing: thing, text: text}
	doc := bindDoc[T](b, root)
	return doc, errors.Join(b.mistakes...)
}

func inFile(file string, err error) error {
	var m *FieldError
	if errors.As(err, &m) {
		m.File = file
	}
	return err
}

func bindDoc[T any](b *binder, n *node) Doc[T] {
	doc := Doc[T]{new(T), b.file, n, b.text}
	b.bind(reflect.ValueOf(doc.Form).Elem(), n, "", field{})
	return doc
}

// binder puts values into forms, and collects what does not fit.
type binder struct {
	file, thing string
	units       bool // a duration may be a number, of the unit of its field
	text        *jsonText
	mistakes    []error
}

// maxMistakes bounds the errors about one file or one body.
const maxMistakes = 100

func (b *binder) fail(at place, path, format string, args ...any) {
	switch m := (&FieldError{File: b.file, Field: path}); {
	case len(b.mistakes) > maxMistakes:
		return
	case len(b.mistakes) == maxMistakes:
		m.place, m.Reason = b.text.place(at), "is wrong, too; more mistakes are not listed"
		b.mistakes = append(b.mistakes, m)
	default:
		m.place, m.Reason = b.text.place(at), fmt.Sprintf(format, args...)
		b.mistakes = append(b.mistakes, m)
	}
}

// reader is a form that reads its value itself, whatever its kind.
type reader interface{ read(*node) error }

// shorthand is a form that may be written as the value of one of its fields alone.
type shorthand interface{ short() (field string) }

// renamed is a form some of whose fields are looked for under other names: those of the
// original descriptions, and of older releases.
type renamed interface{ renamed() map[string]string }

func (b *binder) bind(v reflect.Value, n *node, path string, f field) {
	if r, ok := v.Addr().Interface().(reader); ok {
		if err := r.read(n); err != nil {
			b.fail(n.place, path, "%v", err)
		}
		return
	}
	if n.kind == null {
		b.fail(n.place, path, "has no value; set a value or omit the field")
		return
	}
	if s, ok := v.Addr().Interface().(shorthand); ok && n.kind != object && n.kind != list {
		n = &node{kind: object, place: n.place, fields: []member{{s.short(), n.place, n}}}
	}
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		b.bind(v.Elem(), n, path, f)
	case v.Kind() == reflect.Struct && n.kind == object:
		b.object(v, n, path)
	case v.Kind() == reflect.Slice && n.kind == list:
		v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
		for i, item := range n.items {
			b.bind(v.Index(i), item, fmt.Sprintf("%s[%d]", path, i), f)
		}
	case v.Kind() == reflect.Map && n.kind == object:
		v.Set(reflect.MakeMap(v.Type()))
		for _, m := range n.fields {
			value := reflect.New(v.Type().Elem()).Elem()
			b.bind(value, m.value, path+"."+m.name, f)
			v.SetMapIndex(reflect.ValueOf(m.name), value)
		}
	case isDuration(v.Type()) && v.Kind() != reflect.Slice:
		d, err := b.duration(f, n, v.Type() == reflect.TypeFor[Timeout]())
		if err != nil {
			b.fail(n.place, path, "%v", err)
		}
		v.SetInt(int64(d))
	default:
		if want := scalar(v, n); want != "" {
			b.fail(n.place, path, "%s; want %s", n.found(), b.wanted(v.Type(), want))
		} else if f.least != "" && v.IsZero() {
			b.fail(n.place, path, "is %s; want at least %s, or omit it for the default", n.text, f.least)
		}
	}
}

// found says what is there in the place of what is wanted.
func (n *node) found() string {
	switch n.kind {
	case list, object:
		return "has " + string(n.kind)
	case text:
		return "is " + n.shown()
	}
	return "is " + n.shown() + ", " + string(n.kind)
}

// wanted is what is wanted, of structs with their fields.
func (b *binder) wanted(t reflect.Type, want string) string {
	if t.Kind() == reflect.Struct {
		return want + ": " + names(fieldsOf(t))
	}
	return want
}

// scalar puts a scalar into v, or says what is wanted there.
func scalar(v reflect.Value, n *node) (want string) {
	var err error
	switch v.Kind() {
	case reflect.String:
		if n.kind != text && !n.plain {
			return "text"
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.kind != boolean {
			return "true or false"
		}
		v.SetBool(n.text == "true")
	case reflect.Int, reflect.Int64:
		var i int64
		if i, err = strconv.ParseInt(n.text, 10, 64); err != nil || n.kind != number {
			return "a whole number"
		}
		v.SetInt(i)
	case reflect.Float64:
		var x float64
		if x, err = strconv.ParseFloat(n.text, 64); err != nil || n.kind != number {
			return "a number"
		}
		v.SetFloat(x)
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "names with their texts, such as {name: text}"
	default:
		return "fields"
	}
	return ""
}

func (b *binder) object(v reflect.Value, n *node, path string) {
	fields := fieldsOf(v.Type())
	said := map[int]string{} // the names under which fields were found
	for _, m := range n.fields {
		at := strings.TrimPrefix(path+"."+m.name, ".")
		i, ms := find(fields, m.name)
		if i < 0 {
			b.fail(m.place, at, "%s", b.unknown(v, fields, m.name, path))
			continue
		}
		if said[i] != "" {
			b.fail(m.place, at, "is given twice; first as %s", said[i])
			continue
		}
		said[i] = m.name
		f := fields[i]
		if ms {
			n.fields = append(n.fields, member{f.name, m.place, m.value}) // errors may name it so
		} else {
			f.ms = ""
		}
		if m.value.kind == null {
			m.value.place = m.place
		}
		b.bind(v.FieldByIndex(f.index), m.value, at, f)
	}
}

// find is the field of that name, written or stored; -1 = none.
func find(fields []field, name string) (i int, ms bool) {
	for i, f := range fields {
		if name == f.name || name == f.ms {
			return i, name != f.name
		}
	}
	return -1, false
}

// unknown says why there is no such field.
func (b *binder) unknown(v reflect.Value, fields []field, name, path string) string {
	if r, ok := v.Addr().Interface().(renamed); ok {
		if now := r.renamed()[name]; now != "" {
			return "is not known; " + now
		}
	}
	of := " here"
	if path == "" {
		of = " in " + b.thing
	}
	return "is not known" + of + "; want " + names(fields)
}

// duration reads a duration, or none where it may be none.
func (b *binder) duration(f field, n *node, orNone bool) (Duration, error) {
	var d time.Duration
	var err error
	switch {
	case n.kind == list || n.kind == object:
		return 0, fmt.Errorf("%s; %w", n.found(), errDuration)
	case f.ms != "": // by the stored name
		ms, noInt := strconv.ParseInt(n.text, 10, 64)
		d = time.Duration(ms) * time.Millisecond
		if noInt != nil || n.kind != number || d.Milliseconds() != ms {
			return 0, fmt.Errorf("is %s; want a whole number of milliseconds", n.shown())
		}
		err = nil
	case orNone && n.text == "none":
		return Duration(model.NoTimeout), nil
	default:
		x, notNumber := strconv.ParseFloat(n.text, 64)
		if n.kind == number && notNumber == nil && (b.units && f.unit > 0 || x == 0) {
			d, err = inUnits(x, f.unit, nil)
		} else {
			d, err = ParseDuration(n.text)
		}
	}
	if err == nil && f.least != "" && d == 0 {
		err = fmt.Errorf("want at least %s, or omit it for the default", f.least)
	}
	if err != nil {
		return 0, fmt.Errorf("is %s; %w", n.shown(), err)
	}
	return Duration(d), nil
}

// scalarNode is text from a command line, of whatever kind it looks like.
func scalarNode(s string) *node {
	n := &node{kind: text, text: s, plain: true}
	switch _, err := strconv.ParseFloat(s, 64); {
	case s == "true" || s == "false":
		n.kind = boolean
	case err == nil && json.Valid(bytes.TrimLeft([]byte(s), "+")):
		n.kind = number
	}
	return n
}
