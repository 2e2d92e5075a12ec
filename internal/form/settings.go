package form

import (
	"errors"
	"fmt"
	"slices"
)

// Setting is one value of a configuration file, and where it is.
type Setting struct {
	Section string // "" = of all commands
	Name    string
	Values  []string // one, or those of a list
	List    bool

	file string
	at   place
}

// Where is the place of the value: file:line:column.
func (s Setting) Where() string { return fmt.Sprintf("%s:%d:%d", s.file, s.at.line, s.at.column) }

// Wrong is an error about the setting, which has its place.
func (s Setting) Wrong(format string, args ...any) error {
	path := s.Name
	if s.Section != "" {
		path = s.Section + "." + s.Name
	}
	return &FieldError{File: s.file, place: s.at, Field: path, Reason: fmt.Sprintf(format, args...)}
}

// Settings reads a configuration file, YAML or JSON: names with values, and sections of these names with
// such. It may be empty. The error joins all that is wrong, each a [*FieldError].
func Settings(file string, data []byte, sections ...string) ([]Setting, error) {
	roots, err := parseYAML(data)
	if err != nil {
		return nil, inFile(file, err)
	}
	r := &settingsReader{file: file, sections: sections, seen: map[string]bool{}}
	switch {
	case len(roots) == 0 || len(roots) == 1 && roots[0].kind == null:
		return nil, nil
	case len(roots) > 1:
		return nil, &FieldError{File: file, place: roots[1].place, Reason: "is a second document; want one"}
	case roots[0].kind != object:
		return nil, &FieldError{File: file, place: roots[0].place, Reason: roots[0].found() + "; want names with values"}
	}
	r.read("", roots[0])
	return r.settings, errors.Join(r.mistakes...)
}

type settingsReader struct {
	file     string
	sections []string
	seen     map[string]bool // names of settings and sections
	settings []Setting
	mistakes []error
}

func (r *settingsReader) read(section string, n *node) {
	for _, m := range n.fields {
		s := Setting{Section: section, Name: m.name, file: r.file, at: m.place}
		id := section + "\x00" + m.name
		if r.seen[id] {
			r.mistakes = append(r.mistakes, s.Wrong("is given twice"))
			continue
		}
		r.seen[id] = true
		value := m.value
		switch isSection := section == "" && slices.Contains(r.sections, m.name); {
		case isSection && value.kind == object:
			r.read(m.name, value)
			continue
		case isSection && value.kind != null:
			r.mistakes = append(r.mistakes, s.Wrong("%s; want names with values", value.found()))
			continue
		case isSection: // all of it is commented out
			continue
		case value.kind == list:
			s.List = true
			for _, item := range value.items {
				r.value(&s, item)
			}
		default:
			r.value(&s, value)
		}
		r.settings = append(r.settings, s)
	}
}

// value adds a value to those of the setting.
func (r *settingsReader) value(s *Setting, n *node) {
	switch n.kind {
	case null:
		r.mistakes = append(r.mistakes, s.Wrong("has no value; set a value or omit the name"))
	case list, object:
		r.mistakes = append(r.mistakes, s.Wrong("%s; want a value", n.found()))
	default:
		s.Values = append(s.Values, n.text)
	}
}
