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

// ErrNotFound matches (errors.Is) the error about something that does not exist: a task or a life of it, a
// type, a periodic rule or a run, a flow, a stream or a node, a plan, a worker.
var ErrNotFound = errors.New("not found")

// ErrChanged matches (errors.Is) the error of a change that names another version, or another rev, than the
// stored one. Nothing was written: read again, and decide again.
var ErrChanged = errors.New("changed in the meantime")

// RefusedError reports that the state of a task, a rule or its run, a flow, a stream or a plan forbids a
// command, and why.
type RefusedError struct {
	ID     string // of a rule: its name
	Status Status // of a task; "" = it does not matter, or it is not about a task
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

// NoStreamError reports that events cannot be followed: a standalone server has no change streams, or
// other subscriptions hold all seats. producer.Await and producer.AwaitTask still work, because they poll.
type NoStreamError struct {
	Reason string
	Later  bool // other subscriptions hold all seats; a later attempt may succeed
}

func (e *NoStreamError) Error() string { return "change streams are not available: " + e.Reason }

// ErrMissed matches (errors.Is) the error of a subscription that may have missed events or results: the
// server no longer has all that followed the position where the subscription was, or where it was to
// resume. Read the tasks or the results instead, and subscribe again without a position.
var ErrMissed = errors.New("events were missed")

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
