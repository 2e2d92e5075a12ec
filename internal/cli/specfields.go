package cli

import (
	"reflect"
	"strings"
)

// fieldsOf are the fields that a file may say of what Go calls by that name, for who wrote
// something else there; "" where it has none.
func (f fileOf[T]) fieldsOf(goType string) string {
	const most = 12
	at := structNamed(strings.TrimLeft(goType, "*"), reflect.TypeFor[T](), map[reflect.Type]bool{})
	if at == nil {
		return ""
	}
	names := fieldNames(at)
	if len(names) > most {
		names = append(names[:most:most], "...")
	}
	return strings.Join(names, ", ")
}

// structNamed finds a struct by Go's name in what a file's thing is made of.
func structNamed(name string, in reflect.Type, seen map[reflect.Type]bool) reflect.Type {
	for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice || in.Kind() == reflect.Map {
		in = in.Elem()
	}
	if in.Kind() != reflect.Struct || seen[in] {
		return nil
	}
	seen[in] = true
	if in.String() == name {
		return in
	}
	for i := range in.NumField() {
		if found := structNamed(name, in.Field(i).Type, seen); found != nil {
			return found
		}
	}
	return nil
}

// fieldNames are those that a file may say, in their order.
func fieldNames(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline"):
			names = append(names, fieldNames(f.Type)...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}
