package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// ruleName is a rule's name for people, with its tenant: acme/nightly. Commands take it, too.
func ruleName(r *schedule.Rule) string { return printedName(r.Tenant, r.Name) }

func printedName(tenant, name string) string {
	if tenant != "" {
		name = tenant + "/" + name
	}
	return onTerminal(name)
}

// ruleArgs names a rule in a hint, as what follows a command that can be pasted as it is: it
// is this rule, whatever names those of other tenants have.
func ruleArgs(tenant, name string) string {
	if strings.HasPrefix(name, "-") { // a flag, otherwise
		return strings.TrimPrefix(tenantFlag(tenant)+" -- ", " ") + quoted(name)
	}
	return quoted(name) + tenantFlag(tenant)
}

// tenantFlag is the end of a command for a tenant; none for none.
func tenantFlag(tenant string) string {
	if tenant == "" {
		return ""
	}
	return " --tenant " + tenant
}

// find reads a living rule by its name, by tenant/name, as it is printed, or by its id.
func (r *rulesCommand) find(ctx context.Context, d *connection, name string) (*schedule.Rule, error) {
	rule, err := d.rules.Named(ctx, r.tenant, name)
	if tenant, rest, ok := strings.Cut(name, "/"); ok && (err == nil || errors.Is(err, store.ErrNoRule)) && (r.tenant == "" || r.tenant == tenant) {
		other, otherErr := d.rules.Named(ctx, tenant, rest)
		switch {
		case err == nil && otherErr == nil && rule.ID != other.ID:
			return nil, usage("%s names two rules: %s, and %s of the tenant %s; use the rule's id", name, rule.ID, other.ID, tenant)
		case err != nil && !errors.Is(otherErr, store.ErrNoRule):
			return other, otherErr
		}
	}
	if errors.Is(err, store.ErrNoRule) {
		if byID, idErr := d.rules.Get(ctx, name); !errors.Is(idErr, store.ErrNoRule) {
			return byID, idErr
		}
		if r.tenant == "" {
			err = fmt.Errorf("%w (without --tenant, give the name of a rule without a tenant, or tenant/name)", err)
		}
	}
	return rule, err
}
