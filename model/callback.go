package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Callback says who is told over HTTP when a task has ended (seed 000). A type has one, or
// a task of its own; an empty Callback on a task means that nobody is told, whatever its
// type says.
type Callback struct {
	// Success is called when the task has succeeded; nil = nobody. Until it is delivered
	// the task is Completed, then Success.
	Success *CallbackTarget `bson:"success,omitempty" json:"success,omitempty"`
	// Error is called when the task has ended as Failure; nil = nobody.
	Error *CallbackTarget `bson:"error,omitempty" json:"error,omitempty"`
	// OnPending calls Error also when the task becomes Pending and a person must decide.
	// The task stays Pending whether the callback is delivered or not.
	OnPending bool `bson:"on_pending,omitempty" json:"on_pending,omitempty"`
	// Security says how the request proves where it comes from; nil = not at all.
	Security *CallbackSecurity `bson:"security,omitempty" json:"security,omitempty"`
	// OfHandler marks what a handler said for its tasks and no document of a type holds:
	// consumers set it, so that it is not taken for what was taken out of the type.
	OfHandler bool `bson:"of_handler,omitempty" json:"-"`
}

// CallbackTarget is where a callback goes.
type CallbackTarget struct {
	URL    string `bson:"url" json:"url"`                           // absolute, http or https; without user and password
	Method string `bson:"method,omitempty" json:"method,omitempty"` // POST or PUT; "" = POST
}

// The kinds of security of a callback.
const (
	SecurityNone = "none" // anybody may call the receiver
	SecurityAKSK = "aksk" // signed with HMAC-SHA256, see package callback
)

// CallbackSecurity says how a callback is signed.
type CallbackSecurity struct {
	Type string `bson:"type" json:"type"` // none or aksk
	// Keys of aksk, the newest first: the request is signed with each, so that receivers
	// can change theirs one after the other.
	Keys []CallbackKey `bson:"keys,omitempty" json:"keys,omitempty"`
}

// CallbackKey is an access key with its secret.
type CallbackKey struct {
	AccessKey string `bson:"ak" json:"ak"`
	// Secret is sealed (AES-GCM) in documents, and never shown.
	Secret string `bson:"sk" json:"sk"`
}

// HiddenSecret stands where a secret would be shown.
const HiddenSecret = "***"

// String is the key without its secret, so that it can be printed.
func (k CallbackKey) String() string { return k.AccessKey + ":" + HiddenSecret }

// GoString is [CallbackKey.String], for %#v.
func (k CallbackKey) GoString() string { return "model.CallbackKey(" + k.String() + ")" }

// MarshalJSON writes the key without its secret: JSON is for people and other systems,
// documents keep secrets sealed. So a callback that was read back must be given its
// secrets anew.
func (k CallbackKey) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"ak": k.AccessKey, "sk": HiddenSecret})
}

// String is the method and the address without what may be secret, see [ShownURL].
func (t CallbackTarget) String() string { return cmp.Or(t.Method, "POST") + " " + ShownURL(t.URL) }

// MarshalJSON writes the address without what may be secret, see [ShownURL] and
// [CallbackKey.MarshalJSON].
func (t CallbackTarget) MarshalJSON() ([]byte, error) {
	type plain CallbackTarget
	t.URL = ShownURL(t.URL)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(plain(t))
	return b.Bytes(), err
}

// String is the callback for people, without secrets.
func (c Callback) String() string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return "a callback"
	}
	return strings.TrimSpace(b.String())
}

// MaxCallbackKeys is how many keys a callback may be signed with at once.
const MaxCallbackKeys = 4

// EffectiveMethod is the method, POST where none is said.
func (t CallbackTarget) EffectiveMethod() string {
	return cmp.Or(t.Method, "POST")
}

// ValidFor refuses what tasks of the type cannot have: the end of a delivery is told to
// nobody, since that would be a delivery, too, and so on for ever.
func (o *Options) ValidFor(typ string) error {
	if c := o.Callback; typ == CallbackType && c != nil && (c.Success != nil || c.Error != nil) {
		return Invalid("callback", "cannot be set for tasks of type %s: telling of a delivery would be a delivery, too, and so on for ever", CallbackType)
	}
	return nil
}

// Validate finds everything that is wrong with the callback.
func (c *Callback) Validate() error {
	v := validator{}
	for _, t := range []struct {
		field string
		*CallbackTarget
	}{{"callback.success", c.Success}, {"callback.error", c.Error}} {
		if t.CallbackTarget == nil {
			continue
		}
		u, err := url.Parse(t.URL)
		switch {
		case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
			v.add(t.field+".url", "is %q; want an absolute http or https address", clip(ShownURL(t.URL), 200))
		case u.User != nil:
			v.add(t.field+".url", "is %q, with a user or a password, which everybody would see; sign the callback instead (security: aksk)", clip(ShownURL(t.URL), 200))
		}
		if len(t.URL) > 2000 {
			v.add(t.field+".url", "has %d bytes; at most 2000 are allowed", len(t.URL))
		}
		if t.Method != "" && t.Method != "POST" && t.Method != "PUT" {
			v.add(t.field+".method", "is %q; want POST or PUT", clip(t.Method, 40))
		}
	}
	if c.OnPending && c.Error == nil {
		v.add("callback.on_pending", "is set, but callback.error is missing: it is the receiver that is called")
	}
	if c.Security != nil {
		v.security(c.Security)
	}
	return errors.Join(v.errs...)
}

func (v *validator) security(s *CallbackSecurity) {
	switch {
	case s.Type != SecurityNone && s.Type != SecurityAKSK:
		v.add("callback.security.type", "is %q; want none or aksk", clip(s.Type, 40))
	case s.Type == SecurityNone && len(s.Keys) > 0:
		v.add("callback.security.keys", "are given, but the type is none")
	case s.Type == SecurityAKSK && len(s.Keys) == 0:
		v.add("callback.security.keys", "are missing: aksk signs with at least one")
	case len(s.Keys) > MaxCallbackKeys:
		v.add("callback.security.keys", "are %d; at most %d are allowed", len(s.Keys), MaxCallbackKeys)
	}
	for i, k := range s.Keys {
		if k.AccessKey == "" || len(k.AccessKey) > 200 || strings.ContainsFunc(k.AccessKey, notInHeader) {
			v.add(fmt.Sprintf("callback.security.keys[%d].ak", i), "must be 1 to 200 printable ASCII characters without spaces")
		}
		if k.Secret == "" || len(k.Secret) > 1000 {
			v.add(fmt.Sprintf("callback.security.keys[%d].sk", i), "must be 1 to 1000 bytes")
		}
	}
}

func notInHeader(r rune) bool { return r <= ' ' || r > '~' }
