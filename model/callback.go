package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Callback configures the HTTP requests that report the end of a task (seed 000). Types and
// tasks can have one. An empty Callback on a task disables the callback of its type.
type Callback struct {
	// Success is called when the task has succeeded; nil = no call. The task is Completed until
	// the callback is delivered, then Success.
	Success *CallbackTarget `bson:"success,omitempty" json:"success,omitempty"`
	// Error is called when the task has ended as Failure; nil = no call.
	Error *CallbackTarget `bson:"error,omitempty" json:"error,omitempty"`
	// OnPending also calls Error when the task becomes Pending and a person must decide. The
	// task stays Pending whether or not the callback is delivered.
	OnPending bool `bson:"on_pending,omitempty" json:"on_pending,omitempty"`
	// Security configures how the request is signed; nil = unsigned.
	Security *CallbackSecurity `bson:"security,omitempty" json:"security,omitempty"`
	// OfHandler marks a callback that a handler set for its tasks and that no type document
	// contains. Consumers set it, so that it is not mistaken for a callback that was removed
	// from the type.
	OfHandler bool `bson:"of_handler,omitempty" json:"-"`
}

// CallbackTarget is the receiver of a callback.
type CallbackTarget struct {
	URL    string `bson:"url" json:"url"`                           // absolute, http or https; without user and password
	Method string `bson:"method,omitempty" json:"method,omitempty"` // POST or PUT; "" = POST
}

// The kinds of security of a callback.
const (
	SecurityNone = "none" // anybody may call the receiver
	SecurityAKSK = "aksk" // signed with HMAC-SHA256, see package callback
)

// CallbackSecurity configures how a callback is signed.
type CallbackSecurity struct {
	Type string `bson:"type" json:"type"` // none or aksk
	// Keys of aksk, the newest first. The request is signed with each key, so that receivers
	// can rotate their keys one by one.
	Keys []callback.Key `bson:"keys,omitempty" json:"keys,omitempty"`
}

// String returns the method and the address, with possible secrets masked.
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

// String returns the callback as text, without secrets.
func (c Callback) String() string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return "a callback"
	}
	return strings.TrimSpace(b.String())
}
