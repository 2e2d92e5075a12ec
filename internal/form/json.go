package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNodes bounds the nodes of a form: a flow of ten thousand nodes with fifty values each has so many.
const maxNodes = 500_000

// parseJSON reads text that is one JSON value and begins at a line of a file. Of the lists and objects in it, those that a
// form of the type takes apart have nodes of their parts. The others have their text.
func parseJSON(data []byte, line int, form reflect.Type) (*node, *jsonText, error) {
	t := &jsonText{data: data, first: line}
	if err := t.check(); err != nil {
		return nil, t, err
	}
	r := &jsonReader{data: data, left: maxNodes}
	if form == anything {
		r.left = len(data)
	}
	n, err := r.value(form)
	if err != nil {
		return nil, t, t.wrong(r.at, err.Error())
	}
	return n, t, nil
}

// anything is the type of a form that takes every part of its value, so each part has a node.
var anything = reflect.TypeFor[any]()

// mustParseJSON reads what is known to be JSON.
func mustParseJSON(data []byte) *node {
	n, _, err := parseJSON(data, 1, anything)
	if err != nil {
		return textNode(string(data))
	}
	return n
}

// jsonText is the text of a document in JSON. A place in it has no line, and an offset for its column, until an error
// needs both: to count lines and characters for each value takes time by the square of the text.
type jsonText struct {
	data  []byte
	first int // the number of its first line

	at   int // where place was asked for last
	last place
}

// place is the line and the column of a place; without a text it has them.
func (t *jsonText) place(p place) place {
	if t == nil || p.line > 0 {
		return p
	}
	if p.column < t.at || t.last.line == 0 {
		t.at, t.last = 0, place{t.first, 1}
	}
	part := t.data[t.at:min(p.column, len(t.data))]
	t.at += len(part)
	if end := bytes.LastIndexByte(part, '\n'); end >= 0 {
		t.last = place{t.last.line + bytes.Count(part, []byte("\n")), 1}
		part = part[end+1:]
	}
	t.last.column += utf8.RuneCount(part)
	return t.last
}

func (t *jsonText) wrong(offset int, reason string) error {
	return &FieldError{place: t.place(place{column: offset}), Reason: reason}
}

// check finds what is wrong with the text as JSON.
func (t *jsonText) check() error {
	end, why := len(t.data), ""
	if !json.Valid(t.data) {
		end, why = t.broken()
	}
	if at := tooDeepJSON(t.data[:end]); at >= 0 {
		return t.wrong(at, "is nested too deeply")
	}
	if why != "" {
		return t.wrong(end, why)
	}
	return nil
}

// broken is where the text is not one JSON value, and why.
func (t *jsonText) broken() (at int, why string) {
	var first json.RawMessage
	var syntax *json.SyntaxError
	dec := json.NewDecoder(bytes.NewReader(t.data))
	switch err := dec.Decode(&first); {
	case err == nil:
		rest := t.data[dec.InputOffset():]
		return len(t.data) - len(bytes.TrimLeft(rest, jsonSpace)), "there is more than one JSON value"
	case errors.As(err, &syntax):
		return int(syntax.Offset) - 1, "not JSON: " + syntax.Error()
	default:
		return len(t.data), "not JSON: it ends too early"
	}
}

const jsonSpace = " \t\r\n"

// tooDeepJSON is the offset of the first value that is nested more deeply than any may be, -1 for none.
func tooDeepJSON(data []byte) int {
	depth := 0
	for at := 0; at < len(data); at++ {
		switch c := data[at]; {
		case c == ']' || c == '}':
			depth--
		case depth > maxDepth && strings.IndexByte(jsonSpace+",:", c) < 0:
			return at
		case c == '[' || c == '{':
			depth++
		case c == '"':
			at = endOfString(data, at) - 1
		}
	}
	return -1
}

// endOfString is the offset behind the string that begins there, or the end of the text.
func endOfString(data []byte, at int) int {
	for at++; at < len(data); at++ {
		switch data[at] {
		case '"':
			return at + 1
		case '\\':
			at++
		}
	}
	return len(data)
}

// jsonReader makes nodes of text that is JSON.
type jsonReader struct {
	data []byte
	at   int
	left int // how many nodes it may make
}

// next skips what separates values, and is the byte behind that.
func (r *jsonReader) next() byte {
	for strings.IndexByte(jsonSpace+",:", r.data[r.at]) >= 0 {
		r.at++
	}
	return r.data[r.at]
}

// value makes the node of the next value, for a form of the type; nil = no form takes the value.
func (r *jsonReader) value(form reflect.Type) (*node, error) {
	n := &node{kind: kindOf(r.next()), place: place{column: r.at}}
	if r.left--; r.left < 0 {
		return nil, fmt.Errorf("is too large: more than %d values", maxNodes)
	}
	start := r.at
	if form = opens(form, n.kind); form == nil {
		r.skip()
	} else if err := r.parts(func(name string, at int) error {
		value, err := r.value(partOf(form, name))
		if n.kind == list {
			n.items = append(n.items, value)
		} else {
			n.fields = append(n.fields, member{name, place{column: at}, value})
		}
		return err
	}); err != nil {
		return nil, err
	}
	switch n.raw = r.data[start:r.at]; n.kind {
	case list, object:
	case text:
		n.text = stringOf(n.raw)
	default:
		n.text = string(n.raw)
	}
	return n, nil
}

// parts goes through the list or the object that begins here. do reads, or skips, the value of a part; at is the offset of
// the part.
func (r *jsonReader) parts(do func(name string, at int) error) error {
	named := r.data[r.at] == '{'
	r.at++
	for c := r.next(); c != ']' && c != '}'; c = r.next() {
		at, name := r.at, ""
		if named {
			r.skip()
			name = stringOf(r.data[at:r.at])
			r.next()
		}
		if err := do(name, at); err != nil {
			return err
		}
	}
	r.at++
	return nil
}

// skip skips the value that begins here.
func (r *jsonReader) skip() {
	switch r.data[r.at] {
	case '"':
		r.at = endOfString(r.data, r.at)
	case '[', '{':
		for depth := 0; ; {
			switch r.data[r.at] {
			case '"':
				r.at = endOfString(r.data, r.at) - 1
			case '[', '{':
				depth++
			case ']', '}':
				depth--
			}
			if r.at++; depth == 0 {
				return
			}
		}
	default:
		for r.at < len(r.data) && strings.IndexByte(jsonSpace+",]}", r.data[r.at]) < 0 {
			r.at++
		}
	}
}

// kept says whether a list or an object has its text alone.
func (n *node) kept() bool {
	return n.raw != nil && (n.kind == list || n.kind == object) && len(n.items)+len(n.fields) == 0
}

// keptPart is a part of what is kept, by its name or its index; nil where there is none.
func (n *node) keptPart(name string) (part *node) {
	r := &jsonReader{data: n.raw, left: 1}
	i := 0
	_ = r.parts(func(member string, _ int) error { // of one node there is no error
		if n.kind == list {
			member = strconv.Itoa(i)
			i++
		}
		if part != nil || member != name {
			r.skip()
			return nil
		}
		part, _ = r.value(nil)
		part.column += n.column
		return nil
	})
	return part
}

// kindOf is the kind of the value that begins with the byte.
func kindOf(c byte) kind {
	switch c {
	case '{':
		return object
	case '[':
		return list
	case '"':
		return text
	case 't', 'f':
		return boolean
	case 'n':
		return null
	default:
		return number
	}
}

// stringOf is a string of JSON without its quotes.
func stringOf(raw []byte) (s string) {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	_ = json.Unmarshal(raw, &s) // it is valid
	return s
}

// opens is the type without its pointers, if values of that kind have parts that a form of the type takes; nil = they
// have none.
func opens(form reflect.Type, k kind) reflect.Type {
	if form == nil || k != list && k != object {
		return nil
	}
	for form.Kind() == reflect.Pointer {
		form = form.Elem()
	}
	switch is := form.Kind(); {
	case form == reflect.TypeFor[Value]():
		return nil
	case is == reflect.Interface || reflect.PointerTo(form).Implements(reflect.TypeFor[reader]()):
		return anything
	case k == list && is == reflect.Slice, k == object && (is == reflect.Struct || is == reflect.Map):
		return form
	default:
		return nil
	}
}

// partOf is the type of a part of a type that [opens] has returned; nil = a form has no such field.
func partOf(form reflect.Type, name string) reflect.Type {
	switch form.Kind() {
	case reflect.Slice, reflect.Map:
		return form.Elem()
	case reflect.Struct:
		fields := fieldsOf(form)
		if i, _ := find(fields, name); i >= 0 {
			return form.FieldByIndex(fields[i].index).Type
		}
		return nil
	default:
		return anything
	}
}
