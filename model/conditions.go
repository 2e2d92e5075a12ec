package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Conditions say which tasks a worker takes (seed 000), beside their type. Each field is
// a list of which the task must have one; empty = any. The zero value takes everything.
type Conditions struct {
	Tenants    []string `bson:"tenants,omitempty" json:"tenants,omitempty"` // [NoTenant] = those without one
	Categories []string `bson:"categories,omitempty" json:"categories,omitempty"`
	Creators   []string `bson:"creators,omitempty" json:"creators,omitempty"`
}

// MaxConditions is how many values each of the [Conditions] may have.
const MaxConditions = 200

// IsZero says whether everything is taken.
func (c *Conditions) IsZero() bool {
	return len(c.Tenants) == 0 && len(c.Categories) == 0 && len(c.Creators) == 0
}

// For are the conditions that hold for tasks of a type; nil = none. Deliveries of callbacks
// ([CallbackType]) are taken whatever the conditions say: they are nobody's own work, and
// where each worker takes only some tasks, those of everybody else must be told, too.
func (c *Conditions) For(typ string) *Conditions {
	if typ == CallbackType {
		return nil
	}
	return c
}

// Met says whether the task is one of those.
func (c *Conditions) Met(t *Task) bool {
	if c = c.For(t.Type); c == nil {
		return true
	}
	tenant := t.Tenant
	if tenant == "" {
		tenant = NoTenant
	}
	return oneOf(c.Tenants, tenant) && oneOf(c.Categories, t.Category) && oneOf(c.Creators, t.Creator)
}

func oneOf(wanted []string, v string) bool { return len(wanted) == 0 || slices.Contains(wanted, v) }

// String is the conditions for people; "" where everything is taken.
func (c *Conditions) String() string {
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

// Labels are the audiences at which tasks of types claimed by that label are found; nil
// where the conditions do not restrict it.
func (c *Conditions) Labels(by ClaimBy) []string {
	var values []string
	switch by {
	case ClaimByTenant:
		values = c.Tenants
	case ClaimByCreator:
		values = c.Creators
	case ClaimByCategory:
		values = c.Categories
	}
	out := make([]string, len(values))
	for i, v := range values {
		if by == ClaimByTenant && v == NoTenant {
			v = ""
		}
		out[i] = by.Audience(v)
	}
	return out
}

// Validate finds everything that is wrong with the conditions.
func (c *Conditions) Validate() error {
	v := validator{}
	for _, f := range []struct {
		field  string
		values []string
		valid  func(field, s string) error
	}{{"tenants", c.Tenants, ValidName}, {"categories", c.Categories, validCondition}, {"creators", c.Creators, validCondition}} {
		if len(f.values) > MaxConditions {
			v.add(f.field, "has %d values; at most %d are allowed", len(f.values), MaxConditions)
		}
		for i, s := range f.values {
			v.errs = append(v.errs, f.valid(fmt.Sprintf("%s[%d]", f.field, i), s))
		}
	}
	return errors.Join(v.errs...)
}

// validCondition refuses the empty text: by accident it must not mean anything.
func validCondition(field, s string) error {
	if s == "" {
		return Invalid(field, "is empty")
	}
	return ValidLabel(field, s)
}
