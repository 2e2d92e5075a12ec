package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Conditions say which tasks a worker takes (seed 000), beside their type. Each field is
// a list of which the task must have one; empty = any. The zero value takes everything.
type Conditions struct {
	Tenants    []string `bson:"tenants,omitempty" json:"tenants,omitempty"` // [model.NoTenant] = those without one
	Categories []string `bson:"categories,omitempty" json:"categories,omitempty"`
	Creators   []string `bson:"creators,omitempty" json:"creators,omitempty"`
}

// maxConditions is how many values each of the [Conditions] may have.
const maxConditions = 200

// CheckConditions finds everything that is wrong with the conditions.
func CheckConditions(c *Conditions) error {
	var errs []error
	for _, f := range []struct {
		field  string
		values []string
		valid  func(field, s string) error
	}{{"tenants", c.Tenants, input.Name}, {"categories", c.Categories, validCondition}, {"creators", c.Creators, validCondition}} {
		if len(f.values) > maxConditions {
			errs = append(errs, input.Invalid(f.field, "has %d values; at most %d are allowed", len(f.values), maxConditions))
		}
		for i, s := range f.values {
			errs = append(errs, f.valid(fmt.Sprintf("%s[%d]", f.field, i), s))
		}
	}
	return errors.Join(errs...)
}

// validCondition refuses the empty text: by accident it must not mean anything.
func validCondition(field, s string) error {
	if s == "" {
		return input.Invalid(field, "is empty")
	}
	return input.Label(field, s)
}

// Unconditional says whether everything is taken.
func Unconditional(c *Conditions) bool {
	return len(c.Tenants) == 0 && len(c.Categories) == 0 && len(c.Creators) == 0
}

// ConditionsFor are the conditions that hold for tasks of a type; nil = none. Deliveries of callbacks
// ([input.CallbackType]) are taken whatever the conditions say: they are nobody's own work, and
// where each worker takes only some tasks, those of everybody else must be told, too.
func ConditionsFor(c *Conditions, typ string) *Conditions {
	if typ == input.CallbackType {
		return nil
	}
	return c
}

// ConditionsMet says whether the task is one of those.
func ConditionsMet(c *Conditions, t *model.Task) bool {
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
func ConditionsText(c *Conditions) string {
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
func ConditionLabels(c *Conditions, by model.ClaimBy) []string {
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
