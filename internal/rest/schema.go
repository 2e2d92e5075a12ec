package rest

import (
	"cmp"
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// component is a reference to a schema with a name, which is made where it is needed first.
func component(r huma.Registry, name string, build func() *huma.Schema) *huma.Schema {
	if r.Map()[name] == nil {
		r.Map()[name] = &huma.Schema{} // a schema may hold itself
		*r.Map()[name] = *build()
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// formSchema is the schema of a written form, by its fields.
func formSchema(r huma.Registry, t reflect.Type) *huma.Schema {
	switch t {
	case reflect.TypeFor[form.Duration](), reflect.TypeFor[form.Timeout]():
		return &huma.Schema{Type: huma.TypeString, Examples: []any{"90s"}}
	case reflect.TypeFor[form.Time]():
		return &huma.Schema{Type: huma.TypeString, Examples: []any{"2026-01-31T09:00:00Z"}}
	case reflect.TypeFor[form.Statuses]():
		return &huma.Schema{Examples: []any{"2xx", 200, []any{200, "202-204"}}}
	case reflect.TypeFor[form.Value](), reflect.TypeFor[form.Body]():
		return &huma.Schema{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return formSchema(r, t.Elem())
	case reflect.Slice:
		return &huma.Schema{Type: huma.TypeArray, Items: formSchema(r, t.Elem())}
	case reflect.Map:
		return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: formSchema(r, t.Elem())}
	case reflect.Struct:
		return component(r, strings.ToUpper(t.Name()[:1])+t.Name()[1:]+"Input", func() *huma.Schema { return formObject(r, t) })
	default:
		return scalarSchema(t)
	}
}

func formObject(r huma.Registry, t reflect.Type) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for _, f := range form.Describe(t) {
		p := formSchema(r, f.Type)
		if p.Ref == "" {
			p.Description = f.Doc
		}
		s.Properties[f.Name] = p
		if f.MS == "" {
			continue
		}
		ms := &huma.Schema{Type: huma.TypeInteger, Description: "the same as " + f.Name + ", in milliseconds"}
		if f.Type.Kind() == reflect.Slice {
			ms = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger}, Description: ms.Description}
		}
		s.Properties[f.MS] = ms
	}
	if short := form.Short(t); short != "" {
		s = &huma.Schema{AnyOf: []*huma.Schema{s, s.Properties[short]}}
	}
	return s
}

// documentSchema is the schema of a stored document as package view shows it: by the names under which its
// fields are stored; of what is not stored, by those of its JSON. A later release may store more.
func documentSchema(r huma.Registry, t reflect.Type, key string) *huma.Schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
	case reflect.TypeFor[bson.RawValue](), reflect.TypeFor[bson.Raw](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return &huma.Schema{}
	case reflect.TypeFor[model.Status]():
		s := &huma.Schema{Type: huma.TypeString}
		for _, x := range lifecycle.Statuses {
			s.Enum = append(s.Enum, string(x))
		}
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return documentSchema(r, t.Elem(), key)
	case reflect.Slice:
		return &huma.Schema{Type: huma.TypeArray, Items: documentSchema(r, t.Elem(), key)}
	case reflect.Map:
		return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: documentSchema(r, t.Elem(), key)}
	case reflect.Struct:
		return component(r, documentName(t), func() *huma.Schema {
			s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}}
			for i := range t.NumField() {
				f := t.Field(i)
				name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("bson"), f.Tag.Get("json")), ",")
				switch name {
				case "", "-":
					continue
				case "_id":
					name = key
				}
				s.Properties[name] = documentSchema(r, f.Type, key)
			}
			return s
		})
	default:
		return scalarSchema(t)
	}
}

// documentName is the name of the schema of a document. Packages of documents use the same names, so all but
// package model put their own word in front: both a rule and a plan have a Planned.
func documentName(t reflect.Type) string {
	word := map[string]string{"schedule": "Periodic", "repeat": "Plan", "graph": "Flow"}[path.Base(t.PkgPath())]
	if strings.HasPrefix(t.Name(), word) {
		return t.Name()
	}
	return word + t.Name()
}

func scalarSchema(t reflect.Type) *huma.Schema {
	switch t.Kind() {
	case reflect.Bool:
		return &huma.Schema{Type: huma.TypeBoolean}
	case reflect.Float32, reflect.Float64:
		return &huma.Schema{Type: huma.TypeNumber}
	case reflect.String:
		return &huma.Schema{Type: huma.TypeString}
	default: // durations are milliseconds
		return &huma.Schema{Type: huma.TypeInteger}
	}
}
