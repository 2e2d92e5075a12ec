package input

import (
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/model"
)

// Invalid makes an *[model.InvalidError].
func Invalid(field, format string, args ...any) error {
	return &model.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Under puts the fields that an error names into another field: x becomes field.x. Joined errors stay
// joined.
func Under(field string, err error) error {
	return Renamed(err, func(name string) string { return field + "." + name })
}

// Renamed gives the fields that an error names other names, all of them, also where a text stands before
// errors that are joined.
func Renamed(err error, rename func(field string) string) error {
	var joined interface{ Unwrap() []error }
	if errors.Is(err, model.ErrInvalid) && errors.As(err, &joined) {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, Renamed(e, rename))
		}
		return errors.Join(out...)
	}
	var f *model.InvalidError
	if errors.As(err, &f) {
		return &model.InvalidError{Field: rename(f.Field), Reason: f.Reason}
	}
	return err
}
