package secret

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/model"
)

// MaxBytes of a callback's secret before it is sealed.
const MaxBytes = 500

// SealCallback is the callback with its secrets sealed, to be stored; c is left as it is.
// One that is sealed already, by a key of the box and for its access key, stays so. field
// names the callback in errors, which are model.ErrInvalid: a secret that cannot be sealed
// because no key is set is one of them. nil stays nil.
func (b *Box) SealCallback(field string, c *model.Callback) (*model.Callback, error) {
	if c == nil || c.Security == nil || len(c.Security.Keys) == 0 {
		return c, nil
	}
	out, security := *c, *c.Security
	out.Security, security.Keys = &security, slices.Clone(security.Keys)
	var errs []error
	for i := range security.Keys {
		k := &security.Keys[i]
		sealed, err := b.SealKey(fmt.Sprintf("%s.security.keys[%d]", field, i), *k)
		if err != nil {
			errs = append(errs, err)
		}
		k.Secret = sealed
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &out, nil
}

// SealKey is the key's secret, sealed as [Box.SealCallback] does; field names the key.
func (b *Box) SealKey(field string, k model.CallbackKey) (string, error) {
	sealed, err := b.sealKey(k)
	if err != nil {
		return "", model.Invalid(field+".sk", "%v", err)
	}
	return sealed, nil
}

func (b *Box) sealKey(k model.CallbackKey) (string, error) {
	switch {
	case k.Secret == model.HiddenSecret:
		return "", errors.New("is " + model.HiddenSecret + ", which stands for a secret that is not shown; give the secret itself")
	case b == nil:
		return "", fmt.Errorf("cannot be kept: %w", ErrNoKey)
	case Sealed(k.Secret):
		if _, err := b.Open(k.Secret, k.AccessKey); err != nil {
			return "", err
		}
		return k.Secret, nil
	case len(k.Secret) > MaxBytes:
		return "", fmt.Errorf("has %d bytes; at most %d are allowed", len(k.Secret), MaxBytes)
	}
	if err := callback.CheckSecret(k.Secret); err != nil {
		return "", fmt.Errorf("cannot be used: %w", err)
	}
	return b.Seal(k.Secret, k.AccessKey)
}

// Hidden says whether a secret of the callback is [model.HiddenSecret].
func Hidden(c *model.Callback) bool {
	return c != nil && c.Security != nil && slices.ContainsFunc(c.Security.Keys, hidden)
}

func hidden(k model.CallbackKey) bool { return k.Secret == model.HiddenSecret }

// Keep is the callback with the secrets that are [model.HiddenSecret] as the stored one
// has them for the same access keys; c is left as it is.
func Keep(c, stored *model.Callback) *model.Callback {
	if !Hidden(c) || stored == nil || stored.Security == nil {
		return c
	}
	out, security := *c, *c.Security
	out.Security, security.Keys = &security, slices.Clone(security.Keys)
	for i, k := range security.Keys {
		for _, s := range stored.Security.Keys {
			if hidden(k) && s.AccessKey == k.AccessKey {
				security.Keys[i] = s
			}
		}
	}
	return &out
}

// CallbackKeys opens the keys that a callback is signed with; none where it is not.
func (b *Box) CallbackKeys(s *model.CallbackSecurity) ([]callback.Key, error) {
	if s == nil || s.Type != model.SecurityAKSK {
		return nil, nil
	}
	keys := make([]callback.Key, 0, len(s.Keys))
	for _, k := range s.Keys {
		plain, err := b.Open(k.Secret, k.AccessKey)
		if err != nil {
			return nil, fmt.Errorf("that of the access key %s: %w", k.AccessKey, err)
		}
		keys = append(keys, callback.Key{AccessKey: k.AccessKey, Secret: plain})
	}
	return keys, nil
}

// Hide replaces the secrets in a stored document, a task's or a type's, by
// [model.HiddenSecret]. The document is changed in place.
func Hide(doc bson.D) {
	for i := range doc {
		if options, ok := doc[i].Value.(bson.D); ok && (doc[i].Key == "options" || doc[i].Key == "applied") {
			hideKeys(at(options, "callback", "security"))
		}
	}
}

// HideOptions is a stored options document without secrets.
func HideOptions(v bson.RawValue) bson.RawValue {
	raw, isDoc := v.DocumentOK()
	if !isDoc {
		return v
	}
	if _, err := raw.LookupErr("callback", "security", "keys"); err != nil {
		return v
	}
	var doc bson.D
	if err := bson.Unmarshal(raw, &doc); err != nil {
		return bson.RawValue{} // damaged: nothing of it is shown
	}
	hideKeys(at(doc, "callback", "security"))
	hidden, err := bson.Marshal(doc)
	if err != nil {
		return bson.RawValue{}
	}
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: hidden}
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

func hideKeys(security bson.D) {
	for _, e := range security {
		keys, _ := e.Value.(bson.A)
		for _, k := range keys {
			key, _ := k.(bson.D)
			for i := range key {
				if key[i].Key == "sk" {
					key[i].Value = model.HiddenSecret
				}
			}
		}
	}
}
