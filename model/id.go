package model

import (
	"cmp"
	"fmt"
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
