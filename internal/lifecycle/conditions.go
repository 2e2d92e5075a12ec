package lifecycle

import (
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/model"
)

// Unconditional says whether everything is taken.
func Unconditional(c *model.Conditions) bool {
	return len(c.Tenants) == 0 && len(c.Categories) == 0 && len(c.Creators) == 0
}

// ConditionsFor are the conditions that hold for tasks of a type; nil = none. Deliveries of callbacks
// ([model.CallbackType]) are taken whatever the conditions say: they are nobody's own work, and
// where each worker takes only some tasks, those of everybody else must be told, too.
func ConditionsFor(c *model.Conditions, typ string) *model.Conditions {
	if typ == model.CallbackType {
		return nil
	}
	return c
}

// ConditionsMet says whether the task is one of those.
func ConditionsMet(c *model.Conditions, t *model.Task) bool {
	if c = ConditionsFor(c, t.Type); c == nil {
		return true
	}
	tenant := t.Tenant
	if tenant == "" {
		tenant = model.NoTenant
	}
	return oneOf(c.Tenants, tenant) && oneOf(c.Categories, t.Category) && oneOf(c.Creators, t.Creator)
}

func oneOf(wanted []string, v string) bool { return len(wanted) == 0 || slices.Contains(wanted, v) }

// ConditionsText is the conditions for people; "" where everything is taken.
func ConditionsText(c *model.Conditions) string {
	if c == nil {
		return ""
	}
	var parts []string
	for _, f := range []struct {
		field  string
		values []string
	}{{"tenants", c.Tenants}, {"categories", c.Categories}, {"creators", c.Creators}} {
		if len(f.values) > 0 {
			parts = append(parts, f.field+" "+strings.Join(f.values, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// ConditionLabels are the audiences at which tasks of types claimed by that label are found; nil
// where the conditions do not restrict it.
func ConditionLabels(c *model.Conditions, by model.ClaimBy) []string {
	var values []string
	switch by {
	case model.ClaimByTenant:
		values = c.Tenants
	case model.ClaimByCreator:
		values = c.Creators
	case model.ClaimByCategory:
		values = c.Categories
	}
	out := make([]string, len(values))
	for i, v := range values {
		if by == model.ClaimByTenant && v == model.NoTenant {
			v = ""
		}
		out[i] = LabelAudience(by, v)
	}
	return out
}
