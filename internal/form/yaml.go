package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// parseYAML reads the documents of a file. One that holds nothing, among others, is refused:
// the library loses those after it.
func parseYAML(data []byte) ([]*node, error) { return parseTokens(tokensOf(data)) }

func tokensOf(data []byte) token.Tokens {
	return lexer.Tokenize(string(bytes.TrimPrefix(data, []byte("\ufeff"))))
}

func parseTokens(tokens token.Tokens) ([]*node, error) {
	if t := tooDeep(tokens); t != nil {
		return nil, tooDeeply(placeOf(t))
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, notYAML(err)
	}
	var out []*node
	for i, doc := range file.Docs {
		switch {
		case doc.Body != nil && doc.Body.Type() == ast.DirectiveType:
			continue
		case doc.Body == nil && doc.Start == nil && i == 0:
			return nil, nil // nothing but comments
		case doc.Body == nil:
			return nil, &FieldError{place: placeOf(doc.Start), Reason: "the document is empty"}
		}
		n, err := (&yamlReader{anchors: map[string]*node{}}).node(doc.Body, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func tooDeeply(at place) error { return &FieldError{place: at, Reason: "is nested too deeply"} }

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

// notYAML is an error of the library.
func notYAML(err error) error {
	var syntax *yaml.SyntaxError
	if !errors.As(err, &syntax) {
		return &FieldError{place: place{1, 1}, Reason: err.Error()}
	}
	reason := syntax.Message
	if t := syntax.Token; t != nil && strings.ContainsAny(strings.TrimSpace(t.Value)+" ", "*@%`{") {
		reason += `; quote a value that begins with * @ or {, such as cron: "* * * * *"`
	}
	return &FieldError{place: placeOf(syntax.Token), Reason: reason}
}

// yamlReader makes nodes of one document.
type yamlReader struct {
	anchors map[string]*node
	merged  int // members that are there because something was merged
}

func (r *yamlReader) node(from ast.Node, depth int) (*node, error) {
	n := &node{kind: text, text: from.GetToken().Value, place: placeOf(from.GetToken())}
	if depth > maxDepth {
		return nil, tooDeeply(n.place)
	}
	switch v := from.(type) {
	case *ast.AnchorNode: // known from its end on, so nothing contains itself
		inner, err := r.node(v.Value, depth+1)
		if err == nil {
			r.anchors[v.Name.GetToken().Value] = inner
		}
		return inner, err
	case *ast.AliasNode:
		name := v.Value.GetToken().Value
		known := r.anchors[name]
		if known == nil {
			return nil, &FieldError{place: n.place, Reason: fmt.Sprintf("*%s: no value before it has the anchor &%s; quote text that begins with *", name, name)}
		}
		moved := *known
		moved.place = n.place
		return &moved, nil
	case *ast.TagNode:
		return nil, &FieldError{place: n.place, Reason: "tags such as " + n.text + " are not supported"}
	case *ast.MappingNode:
		return n, r.object(n, v.Values, depth)
	case *ast.MappingValueNode:
		return n, r.object(n, []*ast.MappingValueNode{v}, depth)
	case *ast.SequenceNode:
		n.kind = list
		for _, value := range v.Values {
			item, err := r.node(value, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case *ast.LiteralNode: // a block of text
		n.text = v.Value.Value
	case *ast.NullNode:
		n.kind = null
	case *ast.BoolNode:
		n.kind, n.text, n.plain = boolean, fmt.Sprint(v.Value), true
	case *ast.IntegerNode:
		n.number(v.Value)
	case *ast.FloatNode:
		n.number(v.Value)
	case *ast.InfinityNode, *ast.NanNode:
		n.kind, n.plain = number, true
	case *ast.StringNode:
		n.text, n.plain = v.Value, v.GetToken().Type == token.StringType
		if n.plain && json.Valid([]byte(n.text)) { // 1e6
			n.kind = number
		}
	}
	return n, nil
}

// number keeps what is written where JSON has it, too, so that no digit is lost.
func (n *node) number(value any) {
	n.kind, n.plain = number, true
	if !json.Valid([]byte(n.text)) { // 0x1F, 1_000
		n.text = fmt.Sprint(value)
	}
}

func (r *yamlReader) object(n *node, values []*ast.MappingValueNode, depth int) error {
	n.kind = object
	if len(values) > 0 {
		n.place = placeOf(values[0].Key.GetToken())
	}
	var merged []*node
	for _, v := range values {
		value, err := r.node(v.Value, depth+1)
		if err != nil {
			return err
		}
		at := placeOf(v.Key.GetToken())
		switch key := v.Key.(type) {
		case *ast.MergeKeyNode:
			merged = append(merged, value)
		case ast.ScalarNode:
			n.fields = append(n.fields, member{key.GetToken().Value, at, value})
		default:
			return &FieldError{place: at, Reason: "a name must be text"}
		}
	}
	return r.merge(n, merged)
}

// merge adds the members of the merged objects that are not there already.
func (r *yamlReader) merge(n *node, merged []*node) error {
	if len(merged) == 0 {
		return nil
	}
	there := map[string]bool{}
	for _, m := range n.fields {
		there[m.name] = true
	}
	for _, from := range merged {
		if r.merged += len(from.fields); r.merged > maxMerged {
			return &FieldError{place: from.place, Reason: fmt.Sprintf("the document merges more than %d fields", maxMerged)}
		}
		for _, m := range from.fields {
			if !there[m.name] {
				there[m.name] = true
				n.fields = append(n.fields, m)
			}
		}
	}
	return nil
}

// JSONOfYAML is the one document of a text in YAML, or in JSON, as JSON. If it is neither, the error is a [*FieldError] with
// the line.
func JSONOfYAML(data []byte) ([]byte, error) {
	tokens := tokensOf(data)
	if at, why := tooWide(tokens); at != nil {
		return nil, &FieldError{place: placeOf(at), Reason: why}
	}
	docs, err := parseTokens(tokens)
	switch {
	case err != nil:
		return nil, err
	case len(docs) == 0:
		return []byte("{}"), nil
	case len(docs) > 1:
		return nil, &FieldError{place: docs[1].place, Reason: "a second document begins here; want one"}
	}
	return docs[0].json()
}
