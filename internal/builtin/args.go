package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// CheckArgs finds everything that is wrong with the arguments of a built-in type; nil
// for any other type. It is stricter than the worker: a field that it does not know is
// a mistake here, while a worker must bear with those of a later release.
func CheckArgs(typ string, args json.RawMessage) error {
	if into := argsOf(typ); into != nil {
		return decode(args, into, true)
	}
	return nil
}

// CheckStation refuses a built-in type as the station of a plan: none has the arguments of a step.
func CheckStation(typ string) error {
	if into := argsOf(typ); into != nil {
		return input.Invalid("station", "is %s, which cannot run steps: its arguments are %s, and those of a step have messages", typ, strings.Join(argNames(into), ", "))
	}
	return nil
}

// CheckNodes is [CheckArgs] for the nodes of a flow, and of the flows that they start. What refers to values that are
// not known yet is not checked.
func CheckNodes(nodes []graph.NodeSpec) error {
	var errs []error
	for i := range nodes {
		n := &nodes[i]
		err := checkNode(n)
		if n.Flow != nil {
			err = input.Under("flow", CheckNodes(n.Flow.Nodes))
		}
		errs = append(errs, input.Under(fmt.Sprintf("nodes[%d]", i), err))
	}
	return errors.Join(errs...)
}

func checkNode(n *graph.NodeSpec) error {
	args, err := json.Marshal(n.Args)
	if err != nil || bytes.Contains(args, []byte(`"$`)) {
		return nil //nolint:nilerr // the check of the flow says why
	}
	return CheckArgs(n.Type, args)
}

// validated are the arguments of a built-in type. Each type requires one of them, its first.
type validated interface {
	// validate finds everything that is wrong; given says whether the required argument was given.
	validate(given bool) error
}

// argsOf is where the arguments of a built-in type go; nil for any other type.
func argsOf(typ string) validated {
	switch typ {
	case HTTP.Name():
		return &HTTPArgs{}
	case Exec.Name():
		return &ExecArgs{}
	default:
		return nil
	}
}

// decode reads and validates arguments. The type's handler does it itself, since for a
// built-in type arguments of the wrong shape are the sender's mistake and final, not
// the sign of a rolling deploy that the consumer takes them for.
func decode(args json.RawMessage, into validated, strict bool) error {
	if len(bytes.TrimSpace(args)) == 0 || bytes.Equal(bytes.TrimSpace(args), []byte("null")) {
		return into.validate(false)
	}
	var given map[string]json.RawMessage
	_ = json.Unmarshal(args, &given) // the decoder says what is wrong with it
	names := argNames(into)
	if err := exactNames(given, names); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return input.Invalid("args."+strings.Trim(name, `"`), "is not an argument of this type; want %s", strings.Join(names, ", "))
		}
		return argsError(err)
	}
	required, there := given[names[0]]
	return into.validate(there && string(required) != "null")
}

// exactNames refuses a name that has other letters in upper case than an argument. The decoder would take it
// for that argument, and what hides and compares credentials would not.
func exactNames(given map[string]json.RawMessage, names []string) error {
	for _, name := range names {
		for other := range given {
			if other != name && strings.EqualFold(other, name) {
				return input.Invalid("args."+other, "is not an argument of this type; its name is %s", name)
			}
		}
	}
	return nil
}

// argNames are the names of a type's arguments, in the order of its fields.
func argNames(of validated) (names []string) {
	t := reflect.TypeOf(of).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func argsError(err error) error {
	var typeError *json.UnmarshalTypeError
	switch {
	case errors.Is(err, model.ErrInvalid):
		return err
	case errors.As(err, &typeError):
		field := "args"
		if typeError.Field != "" {
			field += "." + typeError.Field
		}
		return input.Invalid(field, "is a JSON %s; want %s", typeError.Value, goKind(typeError.Type.String()))
	default:
		return input.Invalid("args", "is not JSON: %v", err)
	}
}

// none says how a required argument has no value.
func none(given bool) string {
	if given {
		return "is empty"
	}
	return "is missing"
}

// goKind says a Go type in JSON's words.
func goKind(t string) string {
	switch {
	case strings.HasPrefix(t, "[]"):
		return "an array"
	case strings.HasPrefix(t, "map") || strings.Contains(t, "Args"):
		return "an object"
	case t == "string":
		return "a string"
	case strings.HasPrefix(t, "int"):
		return "a whole number"
	default:
		return "a " + t
	}
}
