package proxy

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Action is what a trap does to a command.
type Action int

// The actions.
const (
	Pass        Action = iota // nothing: the trap only counts
	CutBefore                 // the connection breaks before the server sees the command
	CutAfter                  // the server carries it out; its answer is lost with the connection
	HoldBefore                // the command waits before the server until the trap is released
	HoldAfter                 // the server carries it out; its answer waits until the trap is released
	Refuse                    // the server never sees it; the answer is the rule's error
	RefuseAfter               // the server carries it out; the answer is the rule's error, as a router's may be
)

// Rule says which commands a trap is for.
type Rule struct {
	Command    string // its name; "" = every
	Collection string // "" = every
	Contains   string // somewhere in its bytes, such as a field's name; "" = anything
	Lacks      string // nowhere in its bytes; "" = anything
	Skip       int    // so many of them pass before
	Times      int    // how many are trapped then; 0 = 1, negative = all
	Do         Action
	Code       int32 // of the error with which [Refuse] and [RefuseAfter] answer
}

// refusal is the answer of a server that refuses the command.
func (r *Rule) refusal() bson.Raw {
	answer, _ := bson.Marshal(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: r.Code}, {Key: "errmsg", Value: "refused by the proxy"}}) // numbers and strings always encode
	return answer
}

// Trap is a rule that was set.
type Trap struct {
	rule    Rule
	proxy   *Proxy
	seen    int
	sprung  int
	hit     chan struct{}
	release chan struct{}
}

// Hit is closed when the trap has sprung for the first time: for the actions after the
// server, when the server has answered.
func (t *Trap) Hit() <-chan struct{} { return t.hit }

// Sprung is how many commands were trapped.
func (t *Trap) Sprung() int {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return t.sprung
}

// Release lets go what the trap holds and ends it. It may be called again.
func (t *Trap) Release() {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	t.rule.Times, t.seen = 0, t.rule.Skip+1 // no more
	select {
	case <-t.release:
	default:
		close(t.release)
	}
}

// wants says whether the command is one for the trap. The caller holds the proxy's mu.
func (t *Trap) wants(m message, name, collection string) bool {
	r := &t.rule
	if r.Command != "" && r.Command != name || r.Collection != "" && r.Collection != collection ||
		r.Contains != "" && !bytes.Contains(m, []byte(r.Contains)) || r.Lacks != "" && bytes.Contains(m, []byte(r.Lacks)) {
		return false
	}
	t.seen++
	return t.seen > r.Skip && (r.Times < 0 || t.seen <= r.Skip+max(r.Times, 1))
}

// spring counts a command that was trapped; a nil trap counts nothing.
func (t *Trap) spring() {
	if t == nil {
		return
	}
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	t.sprung++
	if t.sprung == 1 {
		close(t.hit)
	}
}
