package model

import (
	"fmt"

	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Type names a task type and ties its argument and result types together. It is a
// package variable that senders and handlers share:
//
//	var Welcome = model.NewType[WelcomeArgs, model.None]("email.welcome")
type Type[A, R any] struct{ name string }

// NewType makes a type. It panics on a bad name (1 to 100 characters of a-z A-Z 0-9 . _ -): the name is a
// constant of the program, and a wrong one should not survive its first start.
func NewType[A, R any](name string) Type[A, R] {
	if !safetext.IsName(name) {
		panic(fmt.Sprintf("model.NewType: type is %q; want 1 to 100 of a-z A-Z 0-9 . _ -", safetext.Clip(name, 120)))
	}
	return Type[A, R]{name: name}
}

// Name is the name the type was made with; "" for the zero Type, which nothing accepts.
func (t Type[A, R]) Name() string { return t.name }

// None is the type of no argument, or of no result. It is stored as nothing at all.
type None struct{}
