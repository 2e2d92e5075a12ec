package store

import (
	"context"
	"errors"
	"time"
)

// ownTimeLimit is the context of a command that says its maxTimeMS itself. The driver
// writes a second one wherever the context has a deadline, or the caller's client a
// timeout, and MongoDB refuses a field that is there twice (40413). It leaves it out for
// a deadline beyond what maxTimeMS can say. The context still ends when it ends, see Err. What a
// command says with it goes through [timeUp].
type ownTimeLimit struct{ context.Context }

// Far beyond 25 days, near enough for the driver to subtract from.
var beyondMaxTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Deadline implements [context.Context].
func (ownTimeLimit) Deadline() (time.Time, bool) { return beyondMaxTime, true }

// Err implements [context.Context]. A passed deadline counts as a cancellation: of a context that was
// canceled the driver gives up the connection, but for a deadline it relies on the time limit that it
// has set on the connection, which is the one above. It would wait for an answer that never comes.
func (c ownTimeLimit) Err() error {
	if c.Context.Err() != nil {
		return context.Canceled
	}
	return nil
}

// timeUp is the error of a command of the context: if its time passed it says that, in the place of a
// cancellation, which would be no outage.
func timeUp(ctx context.Context, err error) error {
	own, ok := ctx.(ownTimeLimit)
	if ok && err != nil && errors.Is(err, context.Canceled) && errors.Is(own.Context.Err(), context.DeadlineExceeded) {
		return &timeUpError{err}
	}
	return err
}

// timeUpError is [context.DeadlineExceeded], and no cancellation, with the rest of what the driver said.
type timeUpError struct{ err error }

func (e *timeUpError) Error() string { return context.DeadlineExceeded.Error() + ": " + e.err.Error() }

// Is is for [errors.Is].
func (e *timeUpError) Is(target error) bool { return target == context.DeadlineExceeded }

// As is for [errors.As].
func (e *timeUpError) As(target any) bool { return errors.As(e.err, target) }
