// Package failure says what kind of failure an error of the doors is: producer, admin, pull, periodic, flow
// and plan. The command line makes an exit code of it, and the REST API a status.
package failure

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Kind is what a caller can do about a failure.
type Kind int

// The kinds. None is that of nil.
const (
	None        Kind = iota
	Invalid          // the input is wrong: model.ErrInvalid names the fields
	NotFound         // there is no such thing
	Changed          // it has another version than the one that the caller read
	Refused          // its state forbids it
	Interrupted      // the caller's context ended
	Unreachable      // the database does not answer, or not yet: the same again may succeed
	Forbidden        // the database, or its schema, refuses: a person must mend that
	Other
)

// Of is the kind of an error.
func Of(err error) Kind {
	var fatal *store.FatalError
	var refused *model.RefusedError
	var otherKind *store.KindError
	var workerRefused *store.WorkerRefusedError
	switch {
	case err == nil:
		return None
	case errors.Is(err, model.ErrNotFound):
		return NotFound
	case errors.Is(err, model.ErrChanged):
		return Changed
	case errors.Is(err, model.ErrInvalid):
		return Invalid
	case errors.As(err, &fatal):
		return Forbidden
	case errors.As(err, &refused), errors.As(err, &otherKind), errors.As(err, &workerRefused), errors.Is(err, model.ErrFenced):
		return Refused
	case errors.Is(err, context.Canceled):
		return Interrupted
	case OfDatabase(err) && store.Unreachable(err):
		return Unreachable
	default:
		return Other
	}
}

// OfDatabase says whether the server answered with an error, or could not be asked.
func OfDatabase(err error) bool {
	var server mongo.ServerError
	return NoServer(err) || errors.As(err, &server) || mongo.IsNetworkError(err) || mongo.IsTimeout(err)
}

// NoServer says whether no server could be found. The text of such an error describes the whole
// deployment.
func NoServer(err error) bool {
	var selection topology.ServerSelectionError
	return errors.As(err, &selection)
}
