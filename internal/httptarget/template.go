package httptarget

import (
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
	RunID       string    // id of the run's record
	TaskID      string    // of the run's task
	Name        string    // the rule's
	NominalTime time.Time // the tick
	Attempt     int       // as the rule's failure policy counts
	CallbackURL string    // where the answer is to be sent; "" when SYNC
}

// placeholders are the names that a template may use.
var placeholders = []string{"run_id", "task_id", "name", "nominal_time", "attempt", "callback_url"}

const callbackURL = "callback_url"

func (v Values) of(name string) string {
	switch name {
	case "run_id":
		return v.RunID
	case "task_id":
		return v.TaskID
	case "name":
		return v.Name
	case "nominal_time":
		return v.NominalTime.UTC().Format(time.RFC3339)
	case "attempt":
		return strconv.Itoa(v.Attempt)
	default:
		return v.CallbackURL
	}
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
		if !slices.Contains(placeholders, name) {
			return template{}, fmt.Errorf("has the placeholder %q, which is unknown; want one of %s", clip(name), strings.Join(placeholders, ", "))
		}
		t.names = append(t.names, name)
		text = after
	}
}

// clip bounds what an error repeats.
func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "…"
}

func (t template) uses(name string) bool { return slices.Contains(t.names, name) }

func (t template) fill(v Values, escape func(string) string) string {
	var b strings.Builder
	for i, literal := range t.literals {
		if i > 0 {
			b.WriteString(escape(v.of(t.names[i-1])))
		}
		b.WriteString(literal)
	}
	return b.String()
}

// How a place of a request takes a value, so that no value can say more than itself.

func plain(s string) string { return s }

// inURL keeps letters, digits and -._~ and percent-encodes the rest, which is right in a
// path and in a query.
func inURL(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// inJSON is the inside of a JSON string.
func inJSON(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		return "" // a string can be written, always
	}
	return string(quoted[1 : len(quoted)-1])
}

func inHeader(s string) string { return httpcall.Escape(s) }
