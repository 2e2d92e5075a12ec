package flowspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
)

// Template decodes the stored arguments of a node that refer to outputs.
func Template(stored string) (bson.RawValue, error) {
	return codec.EncodeTemplate("args", json.RawMessage(stored), input.MaxArgsBytes)
}

// Refs returns the ids of the nodes whose outputs a template refers to, sorted.
func Refs(v bson.RawValue) []string {
	found := map[string]bool{}
	w := rewriter{root: "args", replace: func(_, name string, of bson.RawValue) bson.RawValue {
		if text, ok := of.StringValueOK(); ok && name == refOutput {
			id, _, _ := strings.Cut(text, ".")
			found[id] = true
		}
		return bson.RawValue{}
	}}
	_, _ = w.rewrite(v) // what is stored was checked
	return slices.Sorted(maps.Keys(found))
}

// Resolve replaces the references of a template by outputs. output returns the output of a node, or
// the zero value if it has none. A missing value is null. The error, a model.ErrInvalid, means that
// the result is too large or nests too deep.
func Resolve(template bson.RawValue, output func(node string) bson.RawValue) (bson.RawValue, error) {
	return resolve(template, bson.RawValue{}, output)
}

// resolve is [Resolve] for the arguments of an element.
func resolve(template, item bson.RawValue, output func(node string) bson.RawValue) (bson.RawValue, error) {
	w := rewriter{root: "args"}
	w.replace = func(at, name string, of bson.RawValue) bson.RawValue {
		text, ok := of.StringValueOK()
		if ok && name == refItem {
			return pick(item, text)
		}
		if !ok || name != refOutput {
			w.bad(at, "is no reference to an output")
			return bson.RawValue{}
		}
		id, path, deeper := strings.Cut(text, ".")
		v := output(id)
		if deeper {
			v = pick(v, path)
		}
		return v
	}
	out, err := w.rewrite(template)
	if err == nil {
		err = input.Args(out)
	}
	if err != nil {
		return bson.RawValue{}, err
	}
	return out, nil
}

// pick is the field of a value at a path of names and places in lists, such as items.0.price. It
// is the zero value where there is none, and the whole value at the path "".
func pick(v bson.RawValue, path string) bson.RawValue {
	if path == "" {
		return v
	}
	for name := range strings.SplitSeq(path, ".") {
		if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeArray {
			return bson.RawValue{}
		}
		inner, err := bson.Raw(v.Value).LookupErr(name)
		if err != nil {
			return bson.RawValue{}
		}
		v = inner
	}
	return v
}

// reference is the object {name: of}.
func reference(name string, of bson.RawValue) bson.RawValue {
	doc := bsoncore.BuildDocument(nil, bsoncore.AppendValueElement(nil, name, bsoncore.Value{Type: bsoncore.Type(of.Type), Data: of.Value}))
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
}

// rewriter copies a value, with others in the place of its references.
type rewriter struct {
	root string // what the value is called
	// replace is what stands for {name: of}, where name starts with $. at is the path of name.
	replace func(at, name string, of bson.RawValue) bson.RawValue
	errs    []error
	full    bool // the copy is too large: it is not made any longer
}

func (w *rewriter) bad(at, format string, args ...any) {
	w.errs = append(w.errs, input.Invalid(at, format, args...))
}

// rewrite copies the value. A null is the zero value, as [codec.EncodeValue] has it.
func (w *rewriter) rewrite(v bson.RawValue) (bson.RawValue, error) {
	if bytes.IndexByte(v.Value, '$') < 0 {
		return v, nil
	}
	t, out := w.value(nil, v, w.root, 0)
	switch {
	case len(w.errs) > 0:
		return bson.RawValue{}, errors.Join(w.errs...)
	case t == bson.TypeNull:
		return bson.RawValue{}, nil
	}
	return bson.RawValue{Type: t, Value: out}, nil
}

func (w *rewriter) value(dst []byte, v bson.RawValue, at string, depth int) (bson.Type, []byte) {
	isDoc := v.Type == bson.TypeEmbeddedDocument
	if !isDoc && v.Type != bson.TypeArray {
		return w.copy(dst, v, at, depth)
	}
	fields, err := bson.Raw(v.Value).Elements()
	if err != nil {
		w.bad(at, "is not a well-formed BSON value: %v", err)
		return bson.TypeNull, dst
	}
	if isDoc && len(fields) == 1 && strings.HasPrefix(fields[0].Key(), "$") {
		name := fields[0].Key()
		return w.copy(dst, w.replace(at+"."+name, name, fields[0].Value()), at, depth)
	}
	start, dst := bsoncore.AppendDocumentStart(dst)
	for i, f := range fields {
		name, path := f.Key(), at+"["+strconv.Itoa(i)+"]"
		if isDoc {
			path = at + "." + name
			w.name(path, name)
		}
		begin := len(dst)
		dst = append(append(append(dst, 0), name...), 0)
		var t bson.Type
		t, dst = w.value(dst, f.Value(), path, depth+1)
		dst[begin] = byte(t)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, start) // the start is in it
	return v.Type, dst
}

// name checks the name of a field that is no reference.
func (w *rewriter) name(at, name string) {
	if strings.HasPrefix(name, "$") {
		w.bad(at, "has a name that starts with $, which is only for a reference that is alone in its object")
	}
}

// plain checks a value that is no template.
func (w *rewriter) plain(at string, v bson.RawValue) {
	if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeArray {
		return
	}
	fields, _ := bson.Raw(v.Value).Elements() // what is damaged ends where it is
	for i, f := range fields {
		path := fmt.Sprintf("%s[%d]", at, i)
		if v.Type == bson.TypeEmbeddedDocument {
			path = at + "." + f.Key()
			if strings.HasPrefix(f.Key(), "$") {
				w.bad(path, "has a name that starts with $, which MongoDB does not store")
			}
		}
		w.plain(path, f.Value())
	}
}

// copy appends a value as it is; the zero value is null.
func (w *rewriter) copy(dst []byte, v bson.RawValue, at string, depth int) (bson.Type, []byte) {
	switch {
	case v.Type == 0:
		return bson.TypeNull, dst
	case w.full:
		return bson.TypeNull, dst
	case len(dst)+len(v.Value) > input.MaxArgsBytes:
		w.full = true
		w.bad(w.root, "has more than %d bytes as BSON when its references are filled in; at most that many are allowed", input.MaxArgsBytes)
		return bson.TypeNull, dst
	case depth+levels(v) > codec.MaxDepth:
		w.bad(at, "is nested deeper than %d levels", codec.MaxDepth)
		return bson.TypeNull, dst
	}
	return v.Type, append(dst, v.Value...)
}

// levels is how deep a value nests.
func levels(v bson.RawValue) (most int) {
	if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeArray {
		return 0
	}
	values, _ := bson.Raw(v.Value).Values()
	for _, inner := range values {
		most = max(most, levels(inner))
	}
	return most + 1
}
