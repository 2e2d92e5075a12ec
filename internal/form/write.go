package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
)

// write is a form as it is written, without what it does not say.
func write(form any) *node {
	data, _ := json.Marshal(form) // nothing in a form refuses it
	return mustParseJSON(data)
}

// YAML writes forms as a file that can be read again: one document each.
func YAML[T any](forms ...*T) (string, error) {
	docs := make([]string, len(forms))
	for i, f := range forms {
		var err error
		if docs[i], err = write(f).yaml(); err != nil {
			return "", err
		}
	}
	return strings.Join(docs, "---\n"), nil
}

// YAMLOfJSON writes JSON as YAML, in the order of its fields.
func YAMLOfJSON(data []byte) (string, error) {
	n, _, err := parseJSON(data, 1, anything)
	if err != nil {
		return "", err
	}
	return n.yaml()
}

func (n *node) yaml() (string, error) {
	data, err := yaml.MarshalWithOptions(n.value(), yaml.Indent(2), yaml.IndentSequence(true))
	if err != nil {
		return "", fmt.Errorf("writing YAML: %w", err)
	}
	return string(data), nil
}

// value is what the library writes as the node.
func (n *node) value() any {
	switch n.kind {
	case null:
		return nil
	case boolean:
		return n.text == "true"
	case number:
		if i, err := strconv.ParseInt(n.text, 10, 64); err == nil {
			return i
		}
		x, _ := strconv.ParseFloat(n.text, 64) // what is stored is one or the other
		return x
	case text:
		if blockSafe(n.text) {
			return n.text
		}
		return quotedText(n.text)
	case list:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = item.value()
		}
		return items
	}
	fields := make(yaml.MapSlice, len(n.fields))
	for i, m := range n.fields {
		fields[i] = yaml.MapItem{Key: m.name, Value: m.value.value()}
	}
	return fields
}

// quotedText is text that the library would not write in a way that it reads again: with
// blank lines or spaces at its ends, say.
type quotedText string

// MarshalYAML writes a JSON string, which is one of YAML, too.
func (q quotedText) MarshalYAML() ([]byte, error) {
	var b bytes.Buffer
	writeText(&b, string(q))
	return b.Bytes(), nil
}

// blockSafe says whether text is one line, or lines that stand for themselves in a block.
func blockSafe(s string) bool {
	for line := range strings.SplitSeq(s, "\n") {
		if line == "" && s != "" || strings.TrimSpace(line) != line || strings.ContainsFunc(line, unicode.IsControl) {
			return false
		}
	}
	return true
}

// Line is a field of a form by its path, and its value.
type Line struct{ Path, Value string }

// Lines are what a form says, a field a line; a list of scalars is one.
func Lines[T any](f *T) (out []Line) {
	if f == nil {
		return nil
	}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		nested := slices.ContainsFunc(n.items, func(v *node) bool { return v.kind == list || v.kind == object })
		switch {
		case n.kind == object && (len(n.fields) > 0 || path == ""):
			for _, m := range n.fields {
				walk(strings.TrimPrefix(path+"."+m.name, "."), m.value)
			}
		case n.kind == object:
			out = append(out, Line{path, "{}"})
		case nested:
			for i, item := range n.items {
				walk(fmt.Sprintf("%s[%d]", path, i), item)
			}
		case n.kind == list:
			values := make([]string, len(n.items))
			for i, item := range n.items {
				values[i] = item.scalar(true)
			}
			out = append(out, Line{path, "[" + strings.Join(values, ", ") + "]"})
		default:
			out = append(out, Line{path, n.scalar(false)})
		}
	}
	walk("", write(f))
	return out
}

// scalar is a value without parts, for people. Text that could be another value is quoted, and so is text that could
// be two of a list.
func (n *node) scalar(inList bool) string {
	if n.kind != text || !json.Valid([]byte(n.text)) && !strings.HasPrefix(n.text, "[") && (!inList || !strings.Contains(n.text, ", ")) {
		return n.text
	}
	var b bytes.Buffer
	writeText(&b, n.text)
	return b.String()
}

// Changes are what makes one form of another, a field a line; nil = nothing.
func Changes[T any](before, after *T) (out []string) {
	old, now := Lines(before), Lines(after)
	value := func(lines []Line, path string) (string, bool) {
		i := slices.IndexFunc(lines, func(l Line) bool { return l.Path == path })
		if i < 0 {
			return "", false
		}
		return lines[i].Value, true
	}
	for _, l := range old {
		if v, there := value(now, l.Path); !there || v != l.Value {
			out = append(out, "- "+l.Path+": "+l.Value)
			if there {
				out = append(out, "+ "+l.Path+": "+v)
			}
		}
	}
	for _, l := range now {
		if _, there := value(old, l.Path); !there {
			out = append(out, "+ "+l.Path+": "+l.Value)
		}
	}
	return out
}
