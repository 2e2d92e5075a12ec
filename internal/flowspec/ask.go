package flowspec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Bounds of what a node asks for.
const (
	maxTitle   = 4 << 10
	maxFields  = 32
	maxHelp    = 1 << 10
	maxChoices = 100
	maxChoice  = 200
)

// kinds are those of the fields that a person is asked for.
var kinds = []string{"string", "number", "bool", "choice"}

// ask checks what a person is asked for.
func (c *checker) ask(v *graph.Vertex) {
	a := *c.n.Ask
	c.text("ask.title", a.Title, 1, maxTitle)
	if n := len(a.Fields); n > maxFields {
		c.bad("ask.fields", "are %d; at most %d are allowed", n, maxFields)
		return
	}
	a.Fields = slices.Clone(a.Fields)
	for i := range a.Fields {
		f := &a.Fields[i]
		at := fmt.Sprintf("ask.fields[%d].", i)
		if !isNodeID(f.Name) {
			c.bad(at+"name", "is %s; want 1 to 64 of a-z A-Z 0-9 _ -", shownID(f.Name))
		}
		if first := slices.IndexFunc(a.Fields, func(o graph.Field) bool { return o.Name == f.Name }); first < i {
			c.bad(at+"name", "is that of ask.fields[%d], too", first)
		}
		if f.Kind = cmp.Or(f.Kind, kinds[0]); !slices.Contains(kinds, f.Kind) {
			c.bad(at+"kind", "is %q; want one of %s", f.Kind, input.Names(kinds))
		}
		c.text(at+"help", f.Help, 0, maxHelp)
		switch isChoice := f.Kind == "choice"; {
		case isChoice && len(f.Choices) == 0:
			c.bad(at+"choices", "are missing; name what a person may choose")
		case !isChoice && len(f.Choices) > 0:
			c.bad(at+"choices", "are given, but the kind is %s; they belong to choice", f.Kind)
		case len(f.Choices) > maxChoices:
			c.bad(at+"choices", "are %d; at most %d are allowed", len(f.Choices), maxChoices)
		}
		for k, choice := range f.Choices {
			c.text(fmt.Sprintf("%schoices[%d]", at, k), choice, 1, maxChoice)
		}
	}
	v.Ask = &a
}

// text checks a text for people.
func (c *checker) text(field, text string, least, most int) {
	switch n := len(text); {
	case n < least:
		c.bad(field, "is empty; want up to %d bytes", most)
	case n > most:
		c.bad(field, "has %d bytes; at most %d are allowed", n, most)
	case !safetext.IsText(text):
		c.bad(field, "must be valid UTF-8 without a NUL byte")
	}
}

// Answers checks the values that a person gives for the fields of a node, and makes its output: an
// object of those that are given, in the order of the fields. values is any JSON object; nil = none.
// The error joins everything that is wrong, each a [model.InvalidError] that names the field.
func Answers(a *graph.Ask, values any) (bson.RawValue, error) {
	given, err := codec.EncodeValue("values", values, maxAnswerBytes)
	if err != nil {
		return bson.RawValue{}, err
	}
	if given.Type != 0 && given.Type != bson.TypeEmbeddedDocument {
		return bson.RawValue{}, input.Invalid("values", "are %s; want an object of fields and values", codec.ValueJSON(given))
	}
	var errs []error
	names := make([]string, len(a.Fields))
	start, out := bsoncore.AppendDocumentStart(nil)
	for i := range a.Fields {
		f := &a.Fields[i]
		names[i] = f.Name
		v := pick(given, f.Name)
		switch none := v.Type == 0 || v.Type == bson.TypeNull; {
		case none && f.Required:
			errs = append(errs, input.Invalid("values."+f.Name, "is missing; it is required%s", helps(f)))
		case none:
		case !fits(f, v):
			errs = append(errs, input.Invalid("values."+f.Name, "is %s; want %s", safetext.Clip(string(codec.ValueJSON(v)), 80), Wanted(f)))
		default:
			out = bsoncore.AppendValueElement(out, f.Name, bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
		}
	}
	fields, _ := bson.Raw(given.Value).Elements() // it was encoded here
	for _, e := range fields {
		if !slices.Contains(names, e.Key()) {
			errs = append(errs, input.Invalid("values."+safetext.Clip(e.Key(), 80), "is not asked for; the node asks for %s", cmp.Or(strings.Join(names, ", "), "no values")))
		}
	}
	out, _ = bsoncore.AppendDocumentEnd(out, start)
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: out}, errors.Join(errs...)
}

func helps(f *graph.Field) string {
	if f.Help == "" {
		return ""
	}
	return ": " + f.Help
}

// fits says whether a value is of the field's kind.
func fits(f *graph.Field, v bson.RawValue) bool {
	text, isText := v.StringValueOK()
	switch f.Kind {
	case "number":
		return v.IsNumber()
	case "bool":
		return v.Type == bson.TypeBoolean
	case "choice":
		return isText && slices.Contains(f.Choices, text)
	default:
		return isText
	}
}

// Wanted describes the values that a field accepts, for people.
func Wanted(f *graph.Field) string {
	switch f.Kind {
	case "number":
		return "a number"
	case "bool":
		return "true or false"
	case "choice":
		return "one of " + strings.Join(f.Choices, ", ")
	default:
		return "text"
	}
}
