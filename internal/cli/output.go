package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/view"
)

// asJSON says whether the result is wanted as JSON, or as YAML, which printJSON makes of it.
func (a *app) asJSON() bool { return a.flags.output != "table" && view.Drawings[a.flags.output] == nil }

// printJSON writes one JSON value to stdout, indented when a person reads it; where YAML is
// wanted, one document of that.
func (a *app) printJSON(v any) error {
	if a.flags.output == "yaml" {
		return a.printYAML(v)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if a.StdoutTerminal {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return a.print(b.String())
}

// printYAML writes what the value is as JSON, which is YAML too, in the form people know.
func (a *app) printYAML(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	text, err := form.YAMLOfJSON(data)
	if err != nil {
		return err
	}
	return a.print("---\n" + text)
}

// printStored prints stored things for other programs, where that is asked for: as a file
// that can be applied, with -o yaml, or as their documents, with -o json.
func printStored[T, F any](a *app, name string, things []T, asForm func(T) *F, document func(T) (json.RawMessage, error)) (done bool, err error) {
	switch a.flags.output {
	case "yaml":
		forms := make([]*F, len(things))
		for i, t := range things {
			forms[i] = asForm(t)
		}
		text, err := form.YAML(forms...)
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

// printOneStored is printStored for one thing, whose document has no list around it.
func printOneStored[T, F any](a *app, thing T, asForm func(T) *F, document func(T) (json.RawMessage, error)) (done bool, err error) {
	if a.flags.output != "json" {
		return printStored(a, "", []T{thing}, asForm, document)
	}
	doc, err := document(thing)
	if err != nil {
		return true, err
	}
	return true, a.printJSON(doc)
}

// printLine prints one of many things, as they come: on a line of its own, as JSON where that is
// wanted, else the text.
func (a *app) printLine(v any, text string) error {
	if a.flags.output != "json" {
		return a.result(v, text+"\n")
	}
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return a.print(string(line) + "\n")
}

// result prints what a command has to tell: the value where JSON or YAML is wanted, else the text.
func (a *app) result(v any, text string) error {
	if a.asJSON() {
		return a.printJSON(v)
	}
	return a.print(text)
}

// partly returns the error that ended a command on several things. Where JSON is wanted, it first prints what was done
// to so many of them before; the text of each was printed when it was done.
func (a *app) partly(err error, done int, v any) error {
	if done == 0 || !a.asJSON() {
		return err
	}
	if failed := a.printJSON(v); !unread(failed) {
		err = errors.Join(err, failed)
	}
	return err
}

// resultTable prints the value where JSON or YAML is wanted, else the table, or that it has no rows.
func (a *app) resultTable(v any, t *table, none string) error {
	if len(t.rows) > 0 || a.asJSON() {
		return a.result(v, t.flush())
	}
	a.say("%s", none)
	return nil
}

func (a *app) print(s string) error {
	if !a.asJSON() {
		s = linesOnTerminal(s)
	}
	if _, err := io.WriteString(a.Stdout, s); err != nil {
		return fmt.Errorf("writing to stdout: %w", err)
	}
	return nil
}

// bar shows on a terminal how far something is.
func (a *app) bar(total int64, what string, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total, append(more, progressbar.OptionSetWriter(a.Stderr), progressbar.OptionSetVisibility(a.StderrTerminal), progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))...)
}

// table is rows under headings, each column as wide as its widest cell.
type table struct {
	heads []string
	rows  [][]string
	width []int // of what was flushed
}

func newTable(heads ...string) *table { return &table{heads: heads} }

func (t *table) add(cells ...string) {
	for i, c := range cells {
		if cells[i] = onTerminal(c); c == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

// flush gives what was added since the last flush, the headings once. Later rows are
// aligned with the earlier ones as far as they fit.
func (t *table) flush() string {
	rows := t.rows
	if t.width == nil {
		t.width = make([]int, len(t.heads))
		rows = append([][]string{t.heads}, rows...)
	}
	t.rows = nil
	return aligned(rows, t.width)
}

// aligned makes lines of rows, and width what they needed.
func aligned(rows [][]string, width []int) string {
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// fields is a list of names and values, aligned; empty values are left out.
type fields struct{ rows [][2]string }

func (f *fields) add(name, value string) {
	if value != "" && value != "-" {
		f.rows = append(f.rows, [2]string{name, value})
	}
}

func (f *fields) String() string {
	w := 0
	for _, r := range f.rows {
		w = max(w, len(r[0]))
	}
	var b strings.Builder
	for _, r := range f.rows {
		fmt.Fprintf(&b, "%-*s  %s\n", w, r[0], strings.ReplaceAll(r[1], "\n", "\n"+strings.Repeat(" ", w+2)))
	}
	return b.String()
}
