package input

import (
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/model"
)

// MaxConditions is how many values each of the [model.Conditions] may have.
const MaxConditions = 200

// Conditions finds everything that is wrong with the conditions.
func Conditions(c *model.Conditions) error {
	v := validator{}
	for _, f := range []struct {
		field  string
		values []string
		valid  func(field, s string) error
	}{{"tenants", c.Tenants, Name}, {"categories", c.Categories, validCondition}, {"creators", c.Creators, validCondition}} {
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
	return Label(field, s)
}
