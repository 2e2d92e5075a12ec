package secret

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"net/http"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// HideArgsJSON is [HideArgs] for JSON.
func HideArgsJSON(typ string, args []byte) []byte {
	v, err := codec.EncodeJSON("args", args, math.MaxInt32)
	if len(args) == 0 || err != nil {
		return nil
	}
	return codec.ValueJSON(HideArgs(typ, v))
}

// CheckArgs refuses arguments of a task of the type that have the mask of a hidden credential, or of a hidden part
// of the URL: nothing is stored that it could stand for. Without a type, the arguments may be those of a call. Errors
// are model.ErrInvalid and name the field.
func CheckArgs(typ string, args []byte) error {
	v, err := codec.EncodeJSON("args", args, math.MaxInt32)
	if len(args) == 0 || err != nil {
		return nil //nolint:nilerr // who stores them says what is wrong
	}
	_, err = KeepArgs(cmp.Or(typ, "http"), v, bson.RawValue{})
	return err
}

// GivenInArgs names the headers whose credentials a task's arguments give, if the stored ones have
// others.
func GivenInArgs(args, stored bson.RawValue) (names []string) {
	known := http.Header{}
	eachCredential(document(stored), func(name, v string) string { known.Set(name, v); return v })
	eachCredential(document(args), func(name, v string) string {
		if v != safetext.Hidden && v != known.Get(name) {
			names = append(names, name)
		}
		return v
	})
	return names
}

// KeepArgs returns the arguments of a task of the type with the hidden parts of their URL and the hidden
// credentials of their headers as they are stored. Credentials must be given for another host; if the
// arguments have no url, for any other arguments. Errors are model.ErrInvalid and name the field.
func KeepArgs(typ string, args, stored bson.RawValue) (bson.RawValue, error) {
	doc, was := document(args), document(stored)
	callee := Callee{URL: CalledURL(typ, stored), hosts: hostsIn(was)} // as it is stored
	known := http.Header{}
	eachCredential(was, func(name, v string) string { known.Set(name, v); return v })
	var errs []error
	if callsURL(typ) {
		edit(doc, func(_, url string) string {
			url = Callee{url, hostsIn(doc)}.KeepURL(callee)
			errs = append(errs, WholeURL("args.url", url))
			return url
		}, "url")
	}
	other := otherArgs(doc, was)
	eachCredential(doc, func(name, v string) string {
		switch kept := known.Get(name); {
		case v != safetext.Hidden:
			return v
		case kept == "":
			errs = append(errs, input.Invalid("args.headers."+name, "%v", errNotShown))
		case other != "":
			errs = append(errs, input.Invalid("args.headers."+name, "is %q: give the secret itself for %s", v, other))
		default:
			return kept
		}
		return v
	})
	if err := errors.Join(errs...); doc == nil || err != nil {
		return args, err
	}
	data, err := bson.Marshal(doc)
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: data}, err
}

// CalledURL returns the URL that a task of the type calls; "" = it calls none.
func CalledURL(typ string, args bson.RawValue) string {
	if !callsURL(typ) {
		return ""
	}
	url, _ := field(document(args), "url").(string)
	return url
}

// otherArgs says what would get the credentials of the stored arguments, if that is not the same.
func otherArgs(args, stored bson.D) string {
	to, is := field(args, "url").(string)
	was, had := field(stored, "url").(string)
	if (!is || !had) && !bytes.Equal(without(args, "headers"), without(stored, "headers")) {
		return "other arguments"
	}
	return Callee{to, hostsIn(args)}.Elsewhere(Callee{was, hostsIn(stored)})
}

// document is a value as a document of its own; nil = it is none.
func document(v bson.RawValue) (doc bson.D) {
	if v.Type != bson.TypeEmbeddedDocument || bson.Unmarshal(v.Value, &doc) != nil {
		return nil
	}
	return doc
}

// eachCredential changes the credentials in the headers of arguments.
func eachCredential(args bson.D, change func(name, v string) string) {
	edit(args, func(name, v string) string {
		if !safetext.IsCredential(name) {
			return v
		}
		return change(name, v)
	}, "headers", "*")
}

func field(doc bson.D, name string) any {
	for _, e := range doc {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// without is a document without a field, with the others in their order.
func without(doc bson.D, name string) []byte {
	data, _ := bson.Marshal(slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool { return e.Key == name })) // it was read
	return data
}
