package access

import (
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Role says what a token is for.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // also changes tasks, rules, plans and flows
	Admin    Role = "admin"    // also changes types, pauses and tokens: everything
	Worker   Role = "worker"   // only the pull protocol
)

// Roles are all of them.
var Roles = []Role{Viewer, Operator, Admin, Worker}

// includes lists, for each role, the roles whose rights it has. A role that is not here, such as one of
// a later release, has no rights.
var includes = map[Role][]Role{
	Viewer:   {Viewer},
	Operator: {Viewer, Operator},
	Admin:    {Viewer, Operator, Admin, Worker},
	Worker:   {Worker},
}

// Includes reports whether the role has the rights of the needed one. It is false if one of them is not
// known.
func (r Role) Includes(needed Role) bool { return slices.Contains(includes[r], needed) }

// ParseRole reads a role. The error names the field and lists the roles.
func ParseRole(field, text string) (Role, error) {
	if r := Role(text); slices.Contains(Roles, r) {
		return r, nil
	}
	var names []string
	for _, r := range Roles {
		names = append(names, string(r))
	}
	return "", input.Invalid(field, "is %q; want one of %s", safetext.Clip(text, 40), strings.Join(names, ", "))
}

// Grant is what a token allows its holder. The zero value has no role, so it allows nothing.
type Grant struct {
	Token   string   // its id, which is public; "" = it is not one of ours
	Subject string   // whom an issuer's token names; "" = it is not an issuer's
	Name    string   // of the token, or of the subject
	Role    Role     // what its holder may do
	Tenants []string // whose things it may see and change; nil = all tenants, [model.NoTenant] = what has none
}

// Who names the holder, for the audit.
func (g Grant) Who() string {
	switch {
	case g.Token != "":
		return "token/" + g.Token
	case g.Subject != "":
		return "oidc/" + g.Subject
	default:
		return "anybody"
	}
}

// Sees reports whether the grant covers the things of the tenant; "" and [model.NoTenant] are those
// without a tenant.
func (g Grant) Sees(tenant string) bool {
	if tenant == "" {
		tenant = model.NoTenant
	}
	return g.Tenants == nil || slices.Contains(g.Tenants, tenant)
}
