package secret

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Hide replaces the secrets in a stored document, of any kind, by [safetext.Hidden], and the ids of executions by
// [input.ShownExecID]. It changes the document in place.
func Hide(doc bson.D) {
	typ, _ := field(doc, "type").(string)
	for _, e := range doc {
		switch part := e.Value; e.Key {
		case "options", "applied":
			hideCallback(part, "callback")
		case "callback": // of a plan, a flow or a stream
			hideCallback(part)
		case "args": // of a call, or of a job that changes those of calls
			edit(part, ifSealed, "keys", "sk")
			edit(part, ifCredential, "headers", "*")
			edit(part, ifCredential, "change", "args", "headers", "*")
			if callsURL(typ) {
				edit(part, shownURL, "url")
			}
			if typ == "mscheduler.bulk" {
				edit(part, shownURL, "change", "args", "url")
			}
		case "worker_states": // executions with the options of their claim
			edit(part, shownExecID, "exec_id")
			hideWithin(part)
		case "task", "planned", "nodes", "flow": // planned tasks, and flows that nodes start
			hideWithin(part)
		}
	}
}

// hideCallback hides the secrets of a callback, which is at a path of documents.
func hideCallback(v any, path ...string) {
	edit(v, always, slices.Concat(path, []string{"security", "keys", "sk"})...)
	edit(v, shownURL, slices.Concat(path, []string{"success", "url"})...)
	edit(v, shownURL, slices.Concat(path, []string{"error", "url"})...)
}

// callsURL says whether tasks of the type call the URL in their arguments. The url of another type is
// the caller's own.
func callsURL(typ string) bool { return typ == "http" || typ == "mscheduler.http" }

func hideWithin(part any) {
	switch part := part.(type) {
	case bson.D:
		Hide(part)
	case bson.A:
		for _, p := range part {
			hideWithin(p)
		}
	}
}

// What becomes of a text in a document, by the name of its field.
func always(string, string) string       { return safetext.Hidden }
func shownURL(_, url string) string      { return safetext.URL(url) }
func shownExecID(_, id string) string    { return input.ShownExecID(id) }
func ifSealed(_, text string) string     { return hiddenIf(Sealed(text), text) }
func ifCredential(name, v string) string { return hiddenIf(safetext.IsCredential(name), v) }

func hiddenIf(hide bool, text string) string {
	if hide {
		return safetext.Hidden
	}
	return text
}

// edit changes the texts at a path of documents and their arrays; * is every field.
func edit(v any, change func(name, text string) string, path ...string) {
	switch v := v.(type) {
	case bson.A:
		for _, p := range v {
			edit(p, change, path...)
		}
	case bson.D:
		for i, e := range v {
			if e.Key != path[0] && path[0] != "*" {
				continue
			}
			if text, ok := e.Value.(string); ok && len(path) == 1 {
				v[i].Value = change(e.Key, text)
			} else if len(path) > 1 {
				edit(e.Value, change, path[1:]...)
			}
		}
	}
}

// HideOptions returns a stored options document without secrets.
func HideOptions(v bson.RawValue) bson.RawValue { return hideIn("", "options", v) }

// HideArgs returns the arguments of a task of the type without sealed secrets, the credentials in headers
// and what may be secret in the URL: those of a call have some.
func HideArgs(typ string, v bson.RawValue) bson.RawValue { return hideIn(typ, "args", v) }

// hideIn is [Hide] for one field of a document of the type. Nothing of a damaged one is shown.
func hideIn(typ, field string, v bson.RawValue) bson.RawValue {
	if v.Type != bson.TypeEmbeddedDocument {
		return v
	}
	data, err := bson.Marshal(bson.D{{Key: "type", Value: typ}, {Key: field, Value: v}})
	var doc bson.D
	if err == nil {
		err = bson.Unmarshal(data, &doc)
	}
	if err == nil {
		Hide(doc)
		data, err = bson.Marshal(doc)
	}
	if err != nil {
		return bson.RawValue{}
	}
	return bson.Raw(data).Lookup(field)
}
