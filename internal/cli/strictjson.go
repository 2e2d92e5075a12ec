package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
)

// strictJSON reads one JSON object into a struct. A field that it does not know, or that is
// there twice, is a mistake; the error names the field. thing is what the object is.
func strictJSON(data []byte, into any, thing string) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return jsonMistake(err, data, into, thing)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has more than one JSON value")
	}
	if field := twice(data, ""); field != "" {
		return input.Invalid(field, "is there twice")
	}
	return nil
}

func jsonMistake(err error, data []byte, into any, thing string) error {
	var typeError *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return errors.New("is not JSON: " + syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("is not JSON: it ends too early")
	case errors.As(err, &typeError) && typeError.Field != "":
		return input.Invalid(typeError.Field, "cannot be a JSON %s", typeError.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return input.Invalid(strings.Trim(name, `"`), "is not a field of %s", thing)
	}
	// What reads itself, a time say, does not know its field's name.
	if at := unreadable(data, reflect.TypeOf(into).Elem(), ""); at != nil {
		return at
	}
	if errors.As(err, &typeError) {
		return errors.New("is a JSON " + typeError.Value + "; want an object")
	}
	return fmt.Errorf("is not %s: %w", thing, err)
}

// unreadable finds the field, by its path, whose value its type does not read.
func unreadable(data []byte, t reflect.Type, path string) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return nil //nolint:nilerr // it is no object: nothing of it can be named
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		raw, said := object[name]
		if !said {
			continue
		}
		of := t.Field(i).Type
		err := json.Unmarshal(raw, reflect.New(of).Interface())
		if err == nil {
			continue
		}
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		why := ": " + err.Error()
		switch {
		case of == reflect.TypeFor[time.Time]():
			why = "; want a time such as 2026-01-31T09:00:00Z"
		case of.Kind() == reflect.Struct:
			return unreadable(raw, of, path+name+".")
		}
		return input.Invalid(path+name, "is %s%s", human.OneLine(string(raw), 80), why)
	}
	return nil
}

// twice finds a field that an object has twice, of which the reader would take the last; ""
// when there is none. What a task's args hold is checked when they are stored.
func twice(data []byte, path string) string {
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return "" // it was read before: there is no such thing
		}
		if folded := strings.ToLower(name); seen[folded] { // as the reader compares names
			return path + name
		} else if seen[folded] = true; folded == "args" && path == "" {
			continue
		}
		if within := twice(value, path+name+"."); within != "" {
			return within
		}
	}
	return ""
}
