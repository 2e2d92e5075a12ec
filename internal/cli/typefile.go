package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// namedSpec is a type of a file, and where it is written there.
type namedSpec struct {
	*typeSpec
	where string
}

// readTypes reads a file of types: YAML documents, each one type or a list of them. A
// field that it does not know is a mistake; all mistakes are named with their lines.
func readTypes(name string, data []byte) ([]namedSpec, error) {
	var out []namedSpec
	plain := yaml.NewDecoder(bytes.NewReader(data))
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	for {
		var doc yaml.Node
		switch err := plain.Decode(&doc); {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return nil, usage("%s has no task types", name)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, yamlError(name, err)
		}
		specs, err := readDocument(strict, doc.Content[0])
		if err != nil {
			return nil, yamlError(name, err)
		}
		for i, s := range specs {
			line := doc.Content[0].Line
			if doc.Content[0].Kind == yaml.SequenceNode {
				line = doc.Content[0].Content[i].Line
			}
			out = append(out, namedSpec{s, fmt.Sprintf("%s:%d", name, line)})
		}
	}
}

// readDocument reads the document of which node is a look ahead.
func readDocument(dec *yaml.Decoder, node *yaml.Node) ([]*typeSpec, error) {
	var list []*typeSpec
	if node.Kind == yaml.SequenceNode {
		err := dec.Decode(&list)
		return list, err //nolint:wrapcheck // yamlError does
	}
	one := &typeSpec{}
	err := dec.Decode(one)
	return []*typeSpec{one}, err //nolint:wrapcheck // yamlError does
}

// yamlError says in a user's words what is wrong with the file.
func yamlError(name string, err error) error {
	var bad *yaml.TypeError
	if !errors.As(err, &bad) {
		return usage("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	lines := make([]string, len(bad.Errors))
	for i, e := range bad.Errors {
		e = strings.ReplaceAll(e, "not found in type cli.typeSpec", "is not a field of a task type")
		if field, _, found := strings.Cut(e, " not found in type cli."); found {
			e = field + " is not a field there"
		}
		lines[i] = name + ": " + e
	}
	return usage("%s", strings.Join(lines, "\n"))
}

// asYAML writes the specs as a file that can be applied.
func asYAML(specs ...*typeSpec) (string, error) {
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

// difference is what a change of a type does to it, a field a line; nil = nothing. The
// version is not part of it.
func difference(before, after *typeSpec) ([]string, error) {
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

// flat is the spec as paths and their values.
func flat(s *typeSpec) (flatSpec, error) {
	if s == nil {
		return nil, nil
	}
	c := *s
	c.Version = 0
	var n yaml.Node
	if err := n.Encode(&c); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	var out flatSpec
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i < len(n.Content); i += 2 {
				walk(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
			}
		case yaml.SequenceNode:
			values := make([]string, len(n.Content))
			for i, v := range n.Content {
				if v.Kind != yaml.ScalarNode {
					walk(fmt.Sprintf("%s[%d]", path, i), v)
				}
				values[i] = v.Value
			}
			if n.Style == yaml.FlowStyle {
				out = append(out, flatField{path, "[" + strings.Join(values, ", ") + "]"})
			}
		default:
			out = append(out, flatField{path, n.Value})
		}
	}
	walk("", &n)
	return out, nil
}
