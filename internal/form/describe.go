package form

import "reflect"

// Described is a field of a form, for those who describe forms.
type Described struct {
	Name  string // in files
	MS    string // the stored name of a duration, whose value is a whole number of milliseconds; "" = it is none
	Doc   string // a noun phrase
	Least string // the least value that may be written
	Type  reflect.Type
}

// Describe lists the fields of a form, those of forms that are embedded in it among them.
func Describe(t reflect.Type) []Described {
	var out []Described
	for _, f := range fieldsOf(t) {
		out = append(out, Described{Name: f.name, MS: f.ms, Doc: f.doc, Least: f.least, Type: t.FieldByIndex(f.index).Type})
	}
	return out
}

// Short is the field of a form whose value alone may stand for the form; "" = none.
func Short(t reflect.Type) string {
	if s, ok := reflect.New(t).Interface().(shorthand); ok {
		return s.short()
	}
	return ""
}
