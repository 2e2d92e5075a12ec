package httptarget

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/periodic/schedule"
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

// The placeholders with a meaning of their own.
const (
	completionURL = "callback_url"
	ext           = "ext"
)

const placeholders = "run_id, task_id, name, nominal_time, attempt, ext, ext.FIELD, " + completionURL

// fill puts the values into a text: {{name}}, with blanks within the braces or not. Every {{
// begins a placeholder; a single brace, and }} alone, are text.
func (v Values) fill(text string, in place) (string, error) {
	var b strings.Builder
	quoted := false // within a JSON string
	for {
		literal, rest, found := strings.Cut(text, "{{")
		b.WriteString(literal)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return "", errors.New("has {{ without }}")
		}
		quoted = endsQuoted(literal, quoted)
		value, err := v.value(strings.TrimSpace(name), in, quoted)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = after
	}
}

// value returns what a placeholder stands for in a place. In JSON, {{ext}} outside of a string is
// the JSON value itself.
func (v Values) value(name string, in place, quoted bool) (string, error) {
	var text string
	switch name {
	case "run_id":
		text = v.RunID
	case "task_id":
		text = v.TaskID
	case "name":
		text = v.Name
	case "nominal_time":
		text = v.NominalTime.UTC().Format(time.RFC3339)
	case "attempt":
		text = strconv.Itoa(v.Attempt)
	case completionURL:
		if text = v.CompletionURL; text == "" {
			return "", fmt.Errorf("has the placeholder %q, which requires mode %s", name, schedule.HTTPAsync)
		}
	default:
		raw, err := v.ext(name)
		if err != nil {
			return "", fmt.Errorf("has the placeholder %q, %w", clip(name), err)
		}
		if in.json && !quoted {
			return string(raw), nil
		}
		var s string
		if text = string(raw); raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
			text = s
		}
	}
	return in.escape(text), nil
}

// ext returns the value at a path of the rule's ext, as compact JSON.
func (v Values) ext(path string) (json.RawMessage, error) {
	parts := strings.Split(path, ".")
	if parts[0] != ext || slices.Contains(parts, "") {
		return nil, errors.New("which is unknown; want one of " + placeholders)
	}
	if v.anyExt {
		return json.Marshal(nasty)
	}
	at := v.Ext
	for _, part := range parts[1:] {
		at = member(at, part)
	}
	if at == nil {
		return nil, errors.New("but the rule's ext does not contain this value")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, at); err != nil {
		return nil, fmt.Errorf("but the rule's ext is not JSON: %w", err)
	}
	return b.Bytes(), nil
}

// member returns a field of an object, or an element of an array by its number; nil for none.
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

// clip bounds what an error repeats.
func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "…"
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
