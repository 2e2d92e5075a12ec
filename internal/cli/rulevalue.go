package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// jsonValue is any JSON value in a YAML file, in the order in which it is written there.
// Empty = none. What YAML has and JSON has not is refused; a date is text, as it looks.
type jsonValue json.RawMessage

// UnmarshalYAML implements yaml.Unmarshaler.
func (v *jsonValue) UnmarshalYAML(n *yaml.Node) error {
	var b bytes.Buffer
	if err := writeJSON(&b, n, 0); err != nil {
		return err
	}
	*v = jsonValue(b.Bytes())
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (v jsonValue) MarshalYAML() (any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(v, &doc); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	unfold(&doc)
	return doc.Content[0], nil
}

// IsZero lets omitempty leave it out.
func (v jsonValue) IsZero() bool { return len(v) == 0 }

// value is what encoders take.
func (v jsonValue) value() any {
	if len(v) == 0 {
		return nil
	}
	return json.RawMessage(v)
}

func jsonValueOf(v any) jsonValue {
	if v == nil {
		return nil
	}
	raw, _ := json.Marshal(v) // what is stored is JSON
	return jsonValue(raw)
}

// Bounds of a value, which end what refers to itself; those that great are refused later
// anyway.
const (
	maxYAMLDepth = 200
	maxYAMLBytes = 4 << 20
)

func writeJSON(b *bytes.Buffer, n *yaml.Node, depth int) error {
	bad := func(format string, args ...any) error {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: ", n.Line) + fmt.Sprintf(format, args...)}}
	}
	if depth > maxYAMLDepth || b.Len() > maxYAMLBytes {
		return bad("the value is too large, or nests too deep")
	}
	switch n.Kind {
	case yaml.AliasNode:
		return writeJSON(b, n.Alias, depth+1)
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, c, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.MappingNode:
		b.WriteByte('{')
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			k := n.Content[i]
			switch {
			case k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge":
				return bad("keys must be text here")
			case seen[k.Value]:
				return bad("the key %q is there twice", k.Value)
			case i > 0:
				b.WriteByte(',')
			}
			seen[k.Value] = true
			writeText(b, k.Value)
			b.WriteByte(':')
			if err := writeJSON(b, n.Content[i+1], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	}
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		writeText(b, n.Value)
	case "!!null":
		b.WriteString("null")
	case "!!bool", "!!int", "!!float":
		if json.Valid([]byte(n.Value)) { // as it is written: no digit is lost
			b.WriteString(n.Value)
			return nil
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return bad("%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		text, err := json.Marshal(v)
		if err != nil {
			return bad("%q is no JSON value", n.Value)
		}
		b.Write(text)
	default:
		return bad("%s is no JSON value", tag)
	}
	return nil
}

func writeText(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // of text into memory
	b.Truncate(b.Len() - 1)
}
