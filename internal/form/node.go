package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

type kind string

const (
	null    kind = "nothing"
	boolean kind = "true or false"
	number  kind = "a number"
	text    kind = "text"
	list    kind = "a list"
	object  kind = "fields"
)

// place is where a value is written, counted from 1; see [jsonText] for those in JSON.
type place struct{ line, column int }

// node is a value of a document.
type node struct {
	kind  kind
	text  string // of a scalar
	plain bool   // a scalar that is not quoted, which may be meant as text
	place
	items  []*node  // of a list
	fields []member // of an object, in their order
	raw    []byte   // as it is written, where that is JSON
}

type member struct {
	name  string
	place // of the name
	value *node
}

func textNode(s string) *node { return &node{kind: text, text: s} }

// get is the value of a field; nil where there is none.
func (n *node) get(name string) *node {
	for _, m := range n.fields {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// at is the value that a path such as retry.local[2].count names; nil where there is none.
func (n *node) at(path string) *node {
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if n == nil {
			return nil
		}
		n = n.part(name)
	}
	return n
}

// part is a field of an object, or an element of a list by its index; nil where there is none.
func (n *node) part(name string) *node {
	i, err := strconv.Atoi(name)
	switch {
	case n.kept():
		return n.keptPart(name)
	case n.kind != list:
		return n.get(name)
	case err == nil && i < len(n.items):
		return n.items[i]
	default:
		return nil
	}
}

// shown is a scalar as an error quotes it.
func (n *node) shown() string {
	if n.kind == text {
		return strconv.Quote(clip(n.text))
	}
	return clip(n.text)
}

func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "..."
	}
	return s
}

// Bounds of a value. One that is written with aliases may be far greater than it looks.
const (
	maxDepth  = 200
	maxBytes  = 4 << 20
	maxMerged = 100_000 // fields of a document
)

// json is the value as JSON.
func (n *node) json() ([]byte, error) {
	var b bytes.Buffer
	err := n.writeJSON(&b, 0)
	return b.Bytes(), err
}

func (n *node) writeJSON(b *bytes.Buffer, depth int) error {
	if depth > maxDepth || b.Len() > maxBytes {
		return errors.New("is too large or nested too deeply")
	}
	switch n.kind {
	case null:
		b.WriteString("null")
	case list:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := item.writeJSON(b, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		for i, m := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, m.name)
			b.WriteByte(':')
			if err := m.value.writeJSON(b, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case text:
		writeText(b, n.text)
	default:
		if !json.Valid([]byte(n.text)) { // .inf
			return fmt.Errorf("contains %s (line %d), which is not a JSON value", n.text, n.line)
		}
		b.WriteString(n.text) // as it is written: no digit is lost
	}
	return nil
}

func writeText(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // of text into memory
	b.Truncate(b.Len() - 1)
}
