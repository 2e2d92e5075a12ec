package model

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strconv"
)

// NoTenant stands in a task id where no tenant was given.
const NoTenant = "-"

// TaskID makes the primary key tenant/type/key. An empty tenant becomes [NoTenant].
// The parts are taken as they are: check them first.
func TaskID(tenant, typ, key string) string {
	if tenant == "" {
		tenant = NoTenant
	}
	return tenant + "/" + typ + "/" + key
}

// Handle names one execution to the outside: who has it may end or ping that
// execution and no other. It contains the task id, so every write finds its shard.
type Handle struct {
	TaskID     string
	Generation int64
	ExecID     string
}

// String encodes the handle so that it fits an URL.
func (h Handle) String() string {
	var plain, encoded [256]byte // mostly enough, and then on the stack
	return string(base64.RawURLEncoding.AppendEncode(encoded[:0], h.appendID(plain[:0])))
}

// ExecutionID names the execution uniquely for ever: task id, generation and exec id.
func (h Handle) ExecutionID() string {
	var id [256]byte
	return string(h.appendID(id[:0]))
}

func (h Handle) appendID(dst []byte) []byte {
	dst = append(append(dst, h.TaskID...), '@')
	dst = append(strconv.AppendInt(dst, h.Generation, 10), '@')
	return append(dst, h.ExecID...)
}

// Token is a fencing token for outside systems: of two executions of one task the
// later has the greater token. A system that remembers the greatest token it has
// seen for a task can refuse a late writer.
type Token struct {
	Generation int64 `json:"generation"`
	Rev        int64 `json:"rev"`
}

// Compare orders tokens: negative when t is older than u.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Generation, u.Generation), cmp.Compare(t.Rev, u.Rev))
}

// String is the token in a form whose order as text is the order of the tokens.
func (t Token) String() string { return fmt.Sprintf("%016x-%08x", t.Generation, t.Rev) }
