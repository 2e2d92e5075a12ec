package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrInvalid matches every error about bad input (errors.Is). The error itself is an
// *[InvalidError], which names the field.
var ErrInvalid = errors.New("invalid input")

// InvalidError names the invalid field of the caller's input and the reason. If it is returned,
// nothing was written.
type InvalidError struct {
	Field  string // as the caller writes it: "key", "retry.max_errors", "args.items[3].price"
	Reason string // completes the sentence "field ..."
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// RefusedError reports that the status of a task, or of a flow, forbids a command, and why.
type RefusedError struct {
	ID     string
	Status Status // of a task; "" = it does not matter, or it is about a flow
	Reason string
}

func (e *RefusedError) Error() string {
	if e.Status == "" {
		return e.ID + ": " + e.Reason
	}
	return fmt.Sprintf("task %s is %s: %s", e.ID, e.Status, e.Reason)
}

// ErrFenced is returned for an execution that no longer holds its task: another worker took
// over the task after the lease lapsed, the task ended, or a new life of the key began.
var ErrFenced = errors.New("the execution no longer holds the task")

// TaskError is what Await returns for a task that ended without success.
type TaskError struct {
	ID     string
	Status Status
	Info   string // the last error's text, or the remark of a resolve or cancel
}

func (e *TaskError) Error() string {
	if e.Info == "" {
		return fmt.Sprintf("task %s ended as %s", e.ID, e.Status)
	}
	return fmt.Sprintf("task %s ended as %s: %s", e.ID, e.Status, e.Info)
}

// UnreadableError names stored documents that this release cannot read, because a later release or a
// person wrote them. All others work.
type UnreadableError struct {
	Documents map[string]error // by their ids or, of periodic rules, their tenants and names
}

// Error has a line for each document.
func (e *UnreadableError) Error() string {
	lines := make([]string, 0, len(e.Documents))
	for _, id := range slices.Sorted(maps.Keys(e.Documents)) {
		lines = append(lines, e.Documents[id].Error())
	}
	return strings.Join(lines, "\n")
}
