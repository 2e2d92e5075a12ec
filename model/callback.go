package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/safetext"
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
	Keys []callback.Key `bson:"keys,omitempty" json:"keys,omitempty"`
}

// String is the method and the address, with possible secrets masked.
func (t CallbackTarget) String() string { return cmp.Or(t.Method, "POST") + " " + safetext.URL(t.URL) }

// MarshalJSON writes the address with possible secrets masked, as [callback.Key.MarshalJSON]
// does.
func (t CallbackTarget) MarshalJSON() ([]byte, error) {
	type plain CallbackTarget
	t.URL = safetext.URL(t.URL)
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
