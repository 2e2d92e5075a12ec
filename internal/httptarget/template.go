package httptarget

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
)

// Values are what placeholders stand for in one run.
type Values struct {
	RunID         string          // id of the run's record
	TaskID        string          // of the run's task
	Name          string          // the rule's
	NominalTime   time.Time       // the tick
	Attempt       int             // as the rule's failure policy counts
	Ext           json.RawMessage // the rule's; nil for none
	CompletionURL string          // where the target sends its completion; "" when SYNC

	anyExt bool // every path of ext exists
}

// placeholders are the names that a template may use, beside paths in ext.
var placeholders = []string{"run_id", "task_id", "name", "nominal_time", "attempt", "ext", "ext.FIELD", "callback_url"}

const (
	completionURL = "callback_url"
	ext           = "ext"
)

// text is a value as it stands in a text.
func (v Values) text(name string) (string, error) {
	switch name {
	case "run_id":
		return v.RunID, nil
	case "task_id":
		return v.TaskID, nil
	case "name":
		return v.Name, nil
	case "nominal_time":
		return v.NominalTime.UTC().Format(time.RFC3339), nil
	case "attempt":
		return strconv.Itoa(v.Attempt), nil
	case completionURL:
		return v.CompletionURL, nil
	}
	raw, err := v.ext(name)
	if err != nil {
		return "", err
	}
	var s string
	if json.Unmarshal(raw, &s) == nil && raw[0] == '"' {
		return s, nil
	}
	return string(raw), nil
}

// ext is the value at a path of the rule's ext, as compact JSON.
func (v Values) ext(path string) (json.RawMessage, error) {
	if v.anyExt {
		return json.Marshal(nasty)
	}
	at := v.Ext
	for i, part := range strings.Split(path, ".") {
		if i > 0 {
			at = member(at, part)
		}
		if at == nil {
			return nil, fmt.Errorf("has the placeholder %q, but the rule's ext has no such value", clip(path))
		}
	}
	var b bytes.Buffer
	if err := json.Compact(&b, at); err != nil {
		return nil, fmt.Errorf("has the placeholder %q, but the rule's ext is not JSON: %w", clip(path), err)
	}
	return b.Bytes(), nil
}

// member is a field of an object, or an element of an array by its number; nil for none.
func member(v json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(v, &fields) == nil {
		return fields[name]
	}
	var list []json.RawMessage
	if i, err := strconv.Atoi(name); err == nil && json.Unmarshal(v, &list) == nil && i >= 0 && i < len(list) {
		return list[i]
	}
	return nil
}

// template is a text with placeholders: literal[0] name[0] literal[1] ... literal[n].
type template struct{ literals, names []string }

// parse reads a text: {{name}}, with blanks within the braces or not. Every {{ begins a
// placeholder; a single brace, and }} alone, are text.
func parse(text string) (template, error) {
	var t template
	for {
		before, rest, found := strings.Cut(text, "{{")
		t.literals = append(t.literals, before)
		if !found {
			return t, nil
		}
		name, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return template{}, fmt.Errorf("has {{ without }}")
		}
		name = strings.TrimSpace(name)
		if !known(name) {
			return template{}, fmt.Errorf("has the placeholder %q, which is unknown; want one of %s", clip(name), strings.Join(placeholders, ", "))
		}
		t.names = append(t.names, name)
		text = after
	}
}

func known(name string) bool {
	if isExt(name) {
		return !slices.Contains(strings.Split(name, "."), "")
	}
	return slices.Contains(placeholders, name)
}

func isExt(name string) bool { return name == ext || strings.HasPrefix(name, ext+".") }

// clip bounds what an error repeats.
func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "…"
}

func (t template) uses(name string) bool { return slices.Contains(t.names, name) }

// fill puts the values into the text. In JSON, {{ext}} outside of a string is the JSON value
// itself.
func (t template) fill(v Values, in place) (string, error) {
	var b strings.Builder
	quoted := false // within a JSON string
	for i, literal := range t.literals {
		if i > 0 {
			name := t.names[i-1]
			if in.json && !quoted && isExt(name) {
				raw, err := v.ext(name)
				if err != nil {
					return "", err
				}
				b.Write(raw)
			} else {
				text, err := v.text(name)
				if err != nil {
					return "", err
				}
				b.WriteString(in.escape(text))
			}
		}
		b.WriteString(literal)
		quoted = endsQuoted(literal, quoted)
	}
	return b.String(), nil
}

// endsQuoted reports whether the end of a piece of JSON lies within a string.
func endsQuoted(text string, quoted bool) bool {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			if quoted {
				i++
			}
		}
	}
	return quoted
}

// place defines how one place of a request encodes a value, so that no value can change the rest.
type place struct {
	escape func(string) string
	json   bool
}

var (
	plain = place{escape: func(s string) string { return s }}
	// inURL keeps letters, digits and -._~ and percent-encodes the rest, which is right in a
	// path and in a query.
	inURL    = place{escape: func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }}
	inJSON   = place{escape: insideString, json: true}
	inHeader = place{escape: httpcall.Escape}
)

// insideString is the inside of a JSON string.
func insideString(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		return "" // a string can be written, always
	}
	return string(quoted[1 : len(quoted)-1])
}
