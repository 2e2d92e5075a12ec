package form

import (
	"encoding/csv"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Flag is a field of a form as the flag of a command. It is what package pflag takes for a value.
type Flag struct {
	Name, Help string
	IsBool     bool // it may be given without a value

	root  reflect.Value
	at    []int
	field field
	of    reflect.Type
	given bool
	text  string // what was given
}

// Flags are those of the fields of a form that have a help text, but for those whose names are
// left out. A flag that is given says the field; one that is not says nothing.
func Flags[T any](form *T, without ...string) []*Flag {
	return flagsOf(reflect.ValueOf(form).Elem(), reflect.TypeFor[T](), nil, without)
}

func flagsOf(root reflect.Value, t reflect.Type, index []int, without []string) (out []*Flag) {
	for _, f := range fieldsOf(t) {
		at := slices.Concat(index, f.index)
		inner := t.FieldByIndex(f.index).Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case slices.Contains(without, f.name):
		case f.doc != "":
			f.ms = ""
			out = append(out, &Flag{Name: f.flag, Help: f.doc, IsBool: inner.Kind() == reflect.Bool, root: root, at: at, field: f, of: inner})
		case inner.Kind() == reflect.Struct:
			out = append(out, flagsOf(root, inner, at, without)...)
		}
	}
	return out
}

// String is what was given, with commas between several. There is no default; the help says what holds.
func (f *Flag) String() string { return f.text }

// Type is what the help calls the value.
func (f *Flag) Type() string {
	switch {
	case f.of.Kind() == reflect.Slice:
		return "list"
	case isDuration(f.of):
		return "duration"
	case f.of == reflect.TypeFor[Time]():
		return "time"
	}
	return f.of.Kind().String()
}

// Set reads the value as a file would.
func (f *Flag) Set(s string) error {
	v := f.root
	for i, step := range f.at {
		if v = v.Field(step); v.Kind() == reflect.Pointer && i < len(f.at)-1 {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	n := scalarNode(s)
	if f.of.Kind() == reflect.Slice {
		n = &node{kind: list}
		if s != "" {
			words, err := csv.NewReader(strings.NewReader(s)).Read()
			if err != nil {
				return err
			}
			for _, w := range words {
				n.items = append(n.items, scalarNode(w))
			}
		}
	}
	before := reflect.ValueOf(v.Interface())
	b := &binder{}
	b.bind(v, n, f.field.name, f.field)
	if len(b.mistakes) > 0 {
		var m *FieldError
		errors.As(b.mistakes[0], &m)
		return errors.New(m.Reason)
	}
	if f.of == reflect.TypeFor[Time]() {
		if _, err := ParseTime(s, time.UTC, time.Unix(0, 0)); err != nil {
			return err
		}
	}
	if f.of.Kind() == reflect.Slice && f.given {
		v.Set(reflect.AppendSlice(before, v))
		s = f.text + "," + s
	}
	f.given, f.text = true, s
	return nil
}
