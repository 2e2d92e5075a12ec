package model

import (
	"errors"
	"fmt"
)

// ErrInvalid is what every error about bad input is (errors.Is). The error itself is
// an *[InvalidError], which names the field.
var ErrInvalid = errors.New("invalid input")

// InvalidError says which field of the caller's input is wrong, and why. Nothing was
// written when it is returned.
type InvalidError struct {
	Field  string // as the caller knows it: "key", "retry.max_errors", "args.items[3].price"
	Reason string // completes the sentence "field ..."
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// RefusedError says why the state of a task forbids what was asked of it.
type RefusedError struct {
	ID     string
	Status Status
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("task %s is %s: %s", e.ID, e.Status, e.Reason)
}

// ErrFenced is returned for an execution that no longer holds its task: its lease
// lapsed and the task was taken over or ended, or a new life of the key began.
var ErrFenced = errors.New("the execution no longer holds the task")

// TaskError is what Await returns for a task that ended without success.
type TaskError struct {
	ID     string
	Status Status
	Info   string // the last error's text, or the remark of who resolved or cancelled it
}

func (e *TaskError) Error() string {
	if e.Info == "" {
		return fmt.Sprintf("task %s ended as %s", e.ID, e.Status)
	}
	return fmt.Sprintf("task %s ended as %s: %s", e.ID, e.Status, e.Info)
}
