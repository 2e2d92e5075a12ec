package dashboard

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/form"
)

// editor is a page on which people write a document, as a form and as YAML side by side, and send it to an operation.
type editor struct {
	Call       string // METHOD /path of the operation
	Then       string // the page to go to, with fields of the answer: /tasks/{id:3}, an id of three parts
	Match      string // If-Match
	Fresh      bool   // the thing must not exist yet: If-None-Match: *
	Label      string // of the button; "" = the viewer may only look at the preview
	Preview    string // METHOD /path of the operation that says what Call would do; "" = there is none
	Draws      bool   // Preview answers with a picture of the graph
	Idempotent bool   // the operation takes an Idempotency-Key
	Help       string
	Fields     []field
	Groups     []fieldGroup // more fields
	Review     string       // says what follows a change; the changes are shown before they are sent; "" = they are not
	Text       string       // YAML to begin with
}

// fieldGroup is a part of a form.
type fieldGroup struct {
	Title  string
	Folded bool // until one of its fields has a value
	Fields []field
}

// field is one of the form; whatever else a document may say is written in YAML.
type field struct {
	Name, Label, Help string
	As                string // number, bool, json, list; "" = text
	Options           []string
	Suggested         []string // a text may be another one
	Required          bool
	Default           string // in words, where it is not set
	Effect            string // of a change
}

func (v *visit) edit(title, nav string, e editor) error {
	return v.render("editor", page{Title: title, Nav: nav, Data: e})
}

// mostText bounds a text that is converted.
const mostText = 1 << 20

// toYAML writes the JSON of a request as YAML.
func (d *Dashboard) toYAML(w http.ResponseWriter, r *http.Request) {
	d.convert(w, r, func(text []byte) ([]byte, error) {
		out, err := form.YAMLOfJSON(text)
		return []byte(out), err
	})
}

// toJSON writes the YAML of a request as JSON.
func (d *Dashboard) toJSON(w http.ResponseWriter, r *http.Request) { d.convert(w, r, form.JSONOfYAML) }

func (d *Dashboard) convert(w http.ResponseWriter, r *http.Request, to func([]byte) ([]byte, error)) {
	if err := (&visit{d: d, w: w, r: r}).identify(); err != nil {
		p := problemOf(err)
		http.Error(w, p.Detail, p.Status)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostText))
	if err == nil {
		text, err = to(text)
	}
	out := document{"text": string(text)}
	if err != nil { // the text is unfinished, say: that is no failed request
		out = document{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // if it fails, the client has gone
}
