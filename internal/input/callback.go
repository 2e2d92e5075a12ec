package input

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// MaxCallbackKeys is how many keys a callback may be signed with at once.
const MaxCallbackKeys = 4

// CallbackType is the type of the tasks that deliver callbacks. They are tasks like any
// other: seen, retried, paused, with a type document of their own if somebody wants one.
const CallbackType = "mscheduler.callback"

// OptionsFor refuses what tasks of the type cannot have: the end of a delivery is told to
// nobody, since that would be a delivery, too, and so on for ever.
func OptionsFor(o *model.Options, typ string) error {
	if c := o.Callback; typ == CallbackType && c != nil && (c.Success != nil || c.Error != nil) {
		return Invalid("callback", "cannot be set for tasks of type %s: the delivery of a callback has no callback of its own", CallbackType)
	}
	return nil
}

// Callback finds everything that is wrong with the callback.
func Callback(c *model.Callback) error {
	v := validator{}
	for _, t := range []struct {
		field string
		*model.CallbackTarget
	}{{"callback.success", c.Success}, {"callback.error", c.Error}} {
		if t.CallbackTarget == nil {
			continue
		}
		fault := safetext.URLFault(t.URL)
		u, _ := url.Parse(t.URL)
		switch {
		case fault != "":
			v.add(t.field+".url", "%s; want an absolute http or https address", fault)
		case u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
			v.add(t.field+".url", "is %q; want an absolute http or https address", safetext.Clip(safetext.URL(t.URL), 200))
		case u.User != nil:
			v.add(t.field+".url", "is %q, with a user or a password, which would be visible to every reader; sign the callback instead (security: aksk)", safetext.Clip(safetext.URL(t.URL), 200))
		}
		if len(t.URL) > 2000 {
			v.add(t.field+".url", "has %d bytes; at most 2000 are allowed", len(t.URL))
		}
		if t.Method != "" && t.Method != http.MethodPost && t.Method != http.MethodPut {
			v.add(t.field+".method", "is %q; want POST or PUT", safetext.Clip(t.Method, 40))
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

func (v *validator) security(s *model.CallbackSecurity) {
	switch {
	case s.Type != model.SecurityNone && s.Type != model.SecurityAKSK:
		v.add("callback.security.type", "is %q; want none or aksk", safetext.Clip(s.Type, 40))
	case s.Type == model.SecurityNone && len(s.Keys) > 0:
		v.add("callback.security.keys", "are given, but the type is none")
	case s.Type == model.SecurityAKSK && len(s.Keys) == 0:
		v.add("callback.security.keys", "are missing: aksk signs with at least one")
	case len(s.Keys) > MaxCallbackKeys:
		v.add("callback.security.keys", "are %d; at most %d are allowed", len(s.Keys), MaxCallbackKeys)
	}
	for i, k := range s.Keys {
		if k.AccessKey == "" || len(k.AccessKey) > 200 || strings.ContainsFunc(k.AccessKey, notInHeader) {
			v.add(fmt.Sprintf("callback.security.keys[%d].ak", i), "must be 1 to 200 printable ASCII characters without spaces")
		}
		if k.Secret == "" || len(k.Secret) > 1000 { // a sealed one is longer than its text
			v.add(fmt.Sprintf("callback.security.keys[%d].sk", i), "must be 1 to 500 bytes")
		}
	}
}

func notInHeader(r rune) bool { return r <= ' ' || r > '~' }
