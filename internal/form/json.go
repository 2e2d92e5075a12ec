package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// jsonReader makes nodes of JSON text.
type jsonReader struct {
	data  []byte
	first int // the number of its first line
	dec   *json.Decoder
}

// parseJSON reads text that is one JSON value and begins at a line of a file.
func parseJSON(data []byte, line int) (*node, error) {
	r := &jsonReader{data: data, first: line, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	n, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if at := r.next(); at < len(data) {
		return nil, &FieldError{place: r.place(at), Reason: "there is more than one JSON value"}
	}
	return n, nil
}

// mustParseJSON reads what is known to be JSON.
func mustParseJSON(data []byte) *node {
	n, err := parseJSON(data, 1)
	if err != nil {
		return textNode(string(data))
	}
	return n
}

// next is the offset of what comes after the last token.
func (r *jsonReader) next() int {
	at := int(r.dec.InputOffset())
	for at < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[at]) >= 0 {
		at++
	}
	return at
}

func (r *jsonReader) place(offset int) place {
	before := r.data[:min(offset, len(r.data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return place{r.first + bytes.Count(before, []byte("\n")), utf8.RuneCount(before[start:]) + 1}
}

// broken is what is wrong with text that is not JSON.
func (r *jsonReader) broken(err error) error {
	var syntax *json.SyntaxError
	at, why := len(r.data), "it ends too early"
	if errors.As(err, &syntax) && int(syntax.Offset) < len(r.data) {
		at, why = max(int(syntax.Offset)-1, 0), syntax.Error()
	} else if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && !errors.As(err, &syntax) {
		why = err.Error()
	}
	return &FieldError{place: r.place(at), Reason: "not JSON: " + why}
}

func (r *jsonReader) value(depth int) (*node, error) {
	start := r.next()
	token, err := r.dec.Token()
	if err != nil {
		return nil, r.broken(err)
	}
	n := &node{place: r.place(start)}
	if depth > maxDepth {
		return nil, &FieldError{place: n.place, Reason: "is nested too deeply"}
	}
	switch v := token.(type) {
	case json.Delim:
		if err := r.inside(n, v, depth); err != nil {
			return nil, err
		}
	case string:
		n.kind, n.text = text, v
	case json.Number:
		n.kind, n.text = number, v.String()
	case bool:
		n.kind, n.text = boolean, fmt.Sprint(v)
	default:
		n.kind, n.text = null, "null"
	}
	n.raw = r.data[start:r.dec.InputOffset()]
	return n, nil
}

// inside reads what an object or a list holds, and its end.
func (r *jsonReader) inside(n *node, open json.Delim, depth int) error {
	n.kind = list
	if open == '{' {
		n.kind = object
	}
	for r.dec.More() {
		if n.kind == list {
			item, err := r.value(depth + 1)
			if err != nil {
				return err
			}
			n.items = append(n.items, item)
			continue
		}
		at := r.place(r.next())
		name, err := r.dec.Token()
		if err != nil {
			return r.broken(err)
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.fields = append(n.fields, member{name.(string), at, value}) // the decoder takes no other
	}
	if _, err := r.dec.Token(); err != nil {
		return r.broken(err)
	}
	return nil
}
