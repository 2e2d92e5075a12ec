package form

import (
	"reflect"
	"strings"
	"sync"
	"time"
)

// field is what the tags of a struct's field say.
type field struct {
	index []int  // in the struct, through those that are embedded in it
	name  string // json: in files
	ms    string // ms: of a duration that is a number of milliseconds; defaults to name and _ms
	doc   string // doc: a noun phrase, the help of its flag; "" = no flag
	flag  string // flag: the name of its flag; defaults to the name with dashes

	unit  time.Duration // unit: of a number without one in a file of types, as seed 000 has them
	least string        // least: 0, which would silently be the default, is refused; this is the least
	whole bool          // whole: where two forms say it, nothing of the second is taken
}

var fieldsByType sync.Map // of []field

// fieldsOf are the fields of a struct, those of structs that are embedded in it among them.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldsByType.Load(t); ok {
		return known.([]field)
	}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				out = append(out, inner)
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		unit, _ := time.ParseDuration(f.Tag.Get("unit")) // none is 0
		one := field{
			index: []int{i}, name: name, ms: f.Tag.Get("ms"), doc: f.Tag.Get("doc"), flag: f.Tag.Get("flag"),
			unit: unit, least: f.Tag.Get("least"), whole: f.Tag.Get("whole") != "",
		}
		if one.ms == "" && isDuration(f.Type) {
			one.ms = name + "_ms"
		}
		if one.flag == "" {
			one.flag = strings.ReplaceAll(name, "_", "-")
		}
		out = append(out, one)
	}
	fieldsByType.Store(t, out)
	return out
}

// isDuration says whether a field holds a duration, or a list of them.
func isDuration(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t == reflect.TypeFor[Duration]() || t == reflect.TypeFor[Timeout]()
}

// names are those of the fields, as many as a reader of an error bears with.
func names(fields []field) string {
	const most = 12
	var out []string
	for i, f := range fields {
		if i == most {
			out = append(out, "...")
			break
		}
		out = append(out, f.name)
	}
	return strings.Join(out, ", ")
}
