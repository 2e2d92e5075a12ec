package rest

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

// body is a request's body: one written form, as a file of the command line has it. An absent body, where
// that is allowed, is the form that says nothing.
type body[T any] struct {
	form *T
	raw  []byte
}

// UnmarshalJSON implements [json.Unmarshaler]. The form is read by Resolve, which can name fields.
func (b *body[T]) UnmarshalJSON(data []byte) error {
	b.raw = bytes.Clone(data)
	return nil
}

// Resolve implements [huma.Resolver]: it tells what is wrong, field by field.
func (b *body[T]) Resolve(huma.Context) []error {
	if b.raw == nil {
		b.raw = []byte("{}")
	}
	doc, err := form.ReadJSON[T]("body", 1, b.raw, "the body")
	b.form = doc.Form
	if err != nil {
		return details(err)
	}
	return nil
}

// text is the body as it came.
func (b *body[T]) text() []byte { return b.raw }

// formType is the type of the form.
func (body[T]) formType() reflect.Type { return reflect.TypeFor[T]() }

// Schema implements [huma.SchemaProvider].
func (body[T]) Schema(r huma.Registry) *huma.Schema { return formSchema(r, reflect.TypeFor[T]()) }

// written is a form that is answered: what the same operations take as their body.
type written[T any] struct{ form *T }

// MarshalJSON implements [json.Marshaler].
func (w written[T]) MarshalJSON() ([]byte, error) { return json.Marshal(w.form) }

// Schema implements [huma.SchemaProvider].
func (written[T]) Schema(r huma.Registry) *huma.Schema { return formSchema(r, reflect.TypeFor[T]()) }

// answer is a body alone.
type answer[T any] struct{ Body T }

func answered[T any](body T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{body}, nil
}

// document is a stored document of type T as package view shows it.
type document[T any] struct{ json.RawMessage }

// MarshalJSON implements [json.Marshaler].
func (d document[T]) MarshalJSON() ([]byte, error) { return d.RawMessage, nil }

// Schema implements [huma.SchemaProvider].
func (document[T]) Schema(r huma.Registry) *huma.Schema {
	return documentSchema(r, reflect.TypeFor[T](), keyName(reflect.TypeFor[T]()))
}

// documentsOf are documents with ids, as the API shows them.
func documentsOf[T any](all []*T) ([]document[T], error) {
	out := make([]document[T], len(all))
	for i, one := range all {
		doc, err := view.Stored(one, "id")
		if err != nil {
			return nil, err
		}
		out[i] = document[T]{doc}
	}
	return out, nil
}

// keyName is the name of the primary key of a document.
func keyName(t reflect.Type) string {
	if t == reflect.TypeFor[model.TaskType]() {
		return "code"
	}
	return "id"
}
