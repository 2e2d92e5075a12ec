package form

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/model"
)

// FieldError is something that is wrong in a file: where, in which field, and why. It is a
// [model.ErrInvalid].
type FieldError struct {
	File string
	place
	Field  string // the path of its name: retry.max_errors; "" = the whole document
	Reason string // completes the sentence "field ..."
}

func (m *FieldError) Error() string {
	what := strings.TrimPrefix(m.Field+" "+m.Reason, " ")
	if m.File == "" { // of a text that is no file
		return fmt.Sprintf("line %d: %s", m.line, what)
	}
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.line, m.column, what)
}

// Is makes errors.Is(err, model.ErrInvalid) true.
func (m *FieldError) Is(target error) bool { return target == model.ErrInvalid }

// Doc is a form that was read, and where.
type Doc[T any] struct {
	Form *T
	file string
	root *node
	text *jsonText // nil of YAML
}

// Where is the place of the document: file:line:column.
func (d Doc[T]) Where() string {
	at := d.text.place(d.root.place)
	return fmt.Sprintf("%s:%d:%d", d.file, at.line, at.column)
}

// Locate gives each error about a field its place in the file, and sorts them by that. Fields of options may be named
// without that, and those that were not written have the place of what they belong to: arguments that of the type. An
// error of another kind gets the place of the document.
func (d Doc[T]) Locate(err error) error {
	var out []error
	var fields []*FieldError
	for _, e := range leaves(err) {
		var bad *model.InvalidError
		if errors.As(e, &bad) {
			fields = append(fields, &FieldError{File: d.file, place: d.placeOf(bad.Field), Field: bad.Field, Reason: bad.Reason})
		} else {
			out = append(out, fmt.Errorf("%s: %w", d.Where(), e))
		}
	}
	slices.SortStableFunc(fields, func(x, y *FieldError) int {
		return cmp.Or(cmp.Compare(x.line, y.line), cmp.Compare(x.column, y.column))
	})
	for _, f := range fields {
		out = append(out, f)
	}
	return errors.Join(out...)
}

func (d Doc[T]) placeOf(path string) place {
	for {
		for _, p := range []string{path, "options." + path, wanting(path)} {
			if n := d.root.at(p); n != nil && path != "" {
				return d.text.place(n.place)
			}
		}
		end := strings.LastIndexAny(path, ".[")
		if end < 0 {
			return d.text.place(d.root.place)
		}
		path = path[:end]
	}
}

// wanting is the type, which says what arguments there must be, if the path is that of the arguments. Any other path is
// returned as it is.
func wanting(path string) string {
	if of, are := strings.CutSuffix(path, "args"); are && (of == "" || strings.HasSuffix(of, ".")) {
		return of + "type"
	}
	return path
}

// leaves are the errors that an error about input joins.
func leaves(err error) (out []error) {
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, model.ErrInvalid) || !errors.As(err, &joined):
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		out = append(out, leaves(e)...)
	}
	return out
}
