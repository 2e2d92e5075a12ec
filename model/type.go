package model

import (
	"fmt"

	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Type binds the name of a task type to the Go types of its arguments and results. Declare it
// as a package variable that senders and handlers share:
//
//	var Welcome = model.NewType[WelcomeArgs, model.None]("email.welcome")
type Type[A, R any] struct{ name string }

// NewType creates a type. The name is 1 to 100 of a-z A-Z 0-9 . _ -. NewType panics on an
// invalid name, because the name is a constant of the program.
func NewType[A, R any](name string) Type[A, R] {
	if !safetext.IsName(name) {
		panic(fmt.Sprintf("model.NewType: type is %q; want 1 to 100 of a-z A-Z 0-9 . _ -", safetext.Clip(name, 120)))
	}
	return Type[A, R]{name: name}
}

// Name returns the name of the type; "" for the zero Type, which no function accepts.
func (t Type[A, R]) Name() string { return t.name }

// None is the type of absent arguments or results. Nothing is stored for it.
type None struct{}
