package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileOf is what a file says of one kind of thing: task types, periodic rules.
type fileOf[T any] struct {
	thing, things string            // as messages call them
	spec          string            // the name of T, which the YAML reader's messages have
	instead       map[string]string // fields that people look for, and what they are called here
}

var typeFile = fileOf[typeSpec]{thing: "a task type", things: "task types", spec: "typeSpec"}

// namedSpec is a thing of a file, and where it is written there.
type namedSpec[T any] struct {
	spec  *T
	where string
}

// read reads a file: YAML documents, each one thing or a list of them. A field that it does
// not know is a mistake; all mistakes are named with their lines.
func (f fileOf[T]) read(name string, data []byte) ([]namedSpec[T], error) {
	var out []namedSpec[T]
	place := "%s:%d"
	if name == "-" {
		name, place = "standard input", "%s, line %d"
	}
	plain := yaml.NewDecoder(bytes.NewReader(data))
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	for {
		var doc yaml.Node
		switch err := plain.Decode(&doc); {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return nil, usage("%s has no %s", name, f.things)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, f.mistake(name, err)
		}
		if none := withoutValue(doc.Content[0]); len(none) > 0 {
			return nil, f.mistake(name, &yaml.TypeError{Errors: none})
		}
		specs, err := f.document(strict, doc.Content[0])
		if err != nil {
			return nil, f.mistake(name, err)
		}
		for i, s := range specs {
			line := doc.Content[0].Line
			if doc.Content[0].Kind == yaml.SequenceNode {
				line = doc.Content[0].Content[i].Line
			}
			out = append(out, namedSpec[T]{s, fmt.Sprintf(place, name, line)})
		}
	}
}

// document reads the document of which node is a look ahead.
func (f fileOf[T]) document(dec *yaml.Decoder, node *yaml.Node) ([]*T, error) {
	if node.Kind == yaml.SequenceNode {
		var list []*T
		err := dec.Decode(&list)
		for i := range list {
			if list[i] == nil { // an empty entry says nothing, which is then refused
				list[i] = new(T)
			}
		}
		return list, err //nolint:wrapcheck // mistake does
	}
	one := new(T)
	err := dec.Decode(one)
	return []*T{one}, err //nolint:wrapcheck // mistake does
}

// asYAML writes the specs as a file that can be applied.
func asYAML[T any](specs ...*T) (string, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	for _, s := range specs {
		if err := enc.Encode(s); err != nil {
			return "", fmt.Errorf("writing YAML: %w", err)
		}
	}
	if err := enc.Close(); err != nil {
		return "", fmt.Errorf("writing YAML: %w", err)
	}
	return b.String(), nil
}

// printStored prints stored things for other programs, where that is asked for: as a file
// that can be applied, with -o yaml, or as their documents, with -o json.
func printStored[T, S any](a *app, name string, things []T, spec func(T) *S, document func(T) (json.RawMessage, error)) (done bool, err error) {
	switch a.flags.output {
	case "yaml":
		specs := make([]*S, len(things))
		for i, t := range things {
			specs[i] = spec(t)
		}
		text, err := asYAML(specs...)
		if err != nil {
			return true, err
		}
		return true, a.print(text)
	case "json":
		docs := make([]json.RawMessage, len(things))
		for i, t := range things {
			if docs[i], err = document(t); err != nil {
				return true, err
			}
		}
		return true, a.printJSON(map[string]any{name: docs})
	default:
		return false, nil
	}
}

// difference is what a change does to a thing, a field a line; nil = nothing. The version
// is not part of it.
func difference[T any](before, after *T) ([]string, error) {
	old, err := flat(before)
	if err != nil {
		return nil, err
	}
	now, err := flat(after)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range old {
		if v, there := now.get(f.path); !there || v != f.value {
			out = append(out, "- "+f.path+": "+f.value)
			if there {
				out = append(out, "+ "+f.path+": "+v)
			}
		}
	}
	for _, f := range now {
		if _, there := old.get(f.path); !there {
			out = append(out, "+ "+f.path+": "+f.value)
		}
	}
	return out, nil
}

type flatField struct{ path, value string }

type flatSpec []flatField

func (s flatSpec) get(path string) (string, bool) {
	for _, f := range s {
		if f.path == path {
			return f.value, true
		}
	}
	return "", false
}

// flat is the spec as paths and their values, without its version.
func flat[T any](s *T) (flatSpec, error) {
	if s == nil {
		return nil, nil
	}
	var n yaml.Node
	if err := n.Encode(s); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	var out flatSpec
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		switch {
		case path == "version":
		case n.Kind == yaml.MappingNode && (len(n.Content) > 0 || path == ""):
			for i := 0; i < len(n.Content); i += 2 {
				walk(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
			}
		case n.Kind == yaml.MappingNode:
			out = append(out, flatField{path, "{}"})
		case n.Kind == yaml.SequenceNode && slices.ContainsFunc(n.Content, func(v *yaml.Node) bool { return v.Kind != yaml.ScalarNode }):
			for i, v := range n.Content {
				walk(fmt.Sprintf("%s[%d]", path, i), v)
			}
		case n.Kind == yaml.SequenceNode:
			values := make([]string, len(n.Content))
			for i, v := range n.Content {
				values[i] = v.Value
			}
			out = append(out, flatField{path, "[" + strings.Join(values, ", ") + "]"})
		default:
			out = append(out, flatField{path, n.Value})
		}
	}
	walk("", &n)
	return out, nil
}
