package model

import (
	"fmt"
)

// NoTenant is the tenant part of the id of a task without a tenant.
const NoTenant = "-"

// TaskID returns the primary key tenant/type/key. An empty tenant becomes [NoTenant]. TaskID
// does not validate the parts.
func TaskID(tenant, typ, key string) string {
	if tenant == "" {
		tenant = NoTenant
	}
	return tenant + "/" + typ + "/" + key
}

// Token is a fencing token for other systems: a later execution of a task has a greater token.
// A system that stores the greatest token of each task can refuse late writers.
type Token struct {
	Generation int64 `json:"generation"`
	Rev        int64 `json:"rev"`
}

// String returns the token as text that sorts in the order of tokens.
func (t Token) String() string { return fmt.Sprintf("%016x-%016x", t.Generation, t.Rev) }
