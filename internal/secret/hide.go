package secret

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// HideCallback is the callback with [safetext.Hidden] for its secrets and with its
// addresses as they are shown; c is left as it is.
func HideCallback(c *model.Callback) *model.Callback {
	shown := withURLs(c, func(_, url string) string { return safetext.URL(url) })
	return withKeys(shown, HideKeys(keysOf(c)))
}

// HideKeys are the keys with [safetext.Hidden] for their secrets; those given are left
// as they are.
func HideKeys(keys []model.CallbackKey) []model.CallbackKey {
	out := slices.Clone(keys)
	for i := range out {
		out[i].Secret = safetext.Hidden
	}
	return out
}

// Hide replaces the secrets in a stored document, a task's, a type's or a rule's, by
// [safetext.Hidden]. The document is changed in place.
func Hide(doc bson.D) {
	for i := range doc {
		switch part, list := parts(doc[i].Value); doc[i].Key {
		case "options", "applied":
			hideSecrets(at(part, "callback", "security"), anySecret)
			hideURL(at(part, "callback", "success"))
			hideURL(at(part, "callback", "error"))
		case "args": // of a call
			hideSecrets(part, Sealed)
			hideHeaders(at(part, "headers"))
		case "task": // of a rule, of what it has planned
			Hide(part)
		case "planned", "worker_states": // an execution may have the options of its claim
			for _, p := range list {
				part, _ := p.(bson.D)
				Hide(part)
			}
		}
	}
}

func parts(v any) (bson.D, bson.A) {
	doc, _ := v.(bson.D)
	list, _ := v.(bson.A)
	return doc, list
}

// HideOptions is a stored options document without secrets.
func HideOptions(v bson.RawValue) bson.RawValue { return hideIn("options", v) }

// HideArgs are a task's arguments without sealed secrets and the credentials of headers:
// those of a call have some.
func HideArgs(v bson.RawValue) bson.RawValue { return hideIn("args", v) }

// hideIn is [Hide] for one field of a document.
func hideIn(field string, v bson.RawValue) bson.RawValue {
	if v.Type != bson.TypeEmbeddedDocument {
		return v
	}
	data, err := bson.Marshal(bson.D{{Key: field, Value: v}})
	var doc bson.D
	if err == nil {
		err = bson.Unmarshal(data, &doc)
	}
	if err == nil {
		Hide(doc)
		data, err = bson.Marshal(doc)
	}
	if err != nil {
		return bson.RawValue{} // damaged: nothing of it is shown
	}
	return bson.Raw(data).Lookup(field)
}

// at follows the path of embedded documents; nil where it ends early.
func at(doc bson.D, path ...string) bson.D {
	for _, name := range path {
		i := slices.IndexFunc(doc, func(e bson.E) bool { return e.Key == name })
		if i < 0 {
			return nil
		}
		doc, _ = doc[i].Value.(bson.D)
	}
	return doc
}

func hideHeaders(doc bson.D) {
	for i := range doc {
		if _, ok := doc[i].Value.(string); ok && secretHeader(doc[i].Key) {
			doc[i].Value = safetext.Hidden
		}
	}
}

// hideURL replaces the address of a target by what is shown of it.
func hideURL(target bson.D) {
	for i := range target {
		if url, ok := target[i].Value.(string); ok && target[i].Key == "url" {
			target[i].Value = safetext.URL(url)
		}
	}
}

func anySecret(string) bool { return true }

// hideSecrets replaces those of the keys in a document that which names.
func hideSecrets(doc bson.D, which func(secret string) bool) {
	for _, e := range doc {
		if e.Key != "keys" {
			continue
		}
		_, keys := parts(e.Value)
		for _, k := range keys {
			key, _ := k.(bson.D)
			for i := range key {
				if text, ok := key[i].Value.(string); ok && key[i].Key == "sk" && which(text) {
					key[i].Value = safetext.Hidden
				}
			}
		}
	}
}
