package input

import (
	"fmt"

	"github.com/mscheduler/mscheduler/model"
)

// Invalid makes an *[model.InvalidError].
func Invalid(field, format string, args ...any) error {
	return &model.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
