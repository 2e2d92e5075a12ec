package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// Class says what a caller can do about an error of the database.
type Class int

// The classes of errors.
const (
	// OK is the class of nil.
	OK Class = iota
	// Retry: nothing reached the server; the same again is safe.
	Retry
	// Ambiguous: the server may or may not have done it; ask before doing it again.
	Ambiguous
	// Duplicate: a unique key exists.
	Duplicate
	// Fatal: the same again fails again: no permission, a server too old, a bad command.
	Fatal
)

func (c Class) String() string {
	return [...]string{"ok", "retry", "ambiguous", "duplicate", "fatal"}[c]
}

// FatalError is an error that no retry mends.
type FatalError struct {
	Reason string
	Err    error
}

func (e *FatalError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}
func (e *FatalError) Unwrap() error { return e.Err }

// codes of MongoDB that decide a class; the names are those of its error_codes.yml.
var (
	fatalCodes = []int{
		2,      // BadValue
		9,      // FailedToParse
		13,     // Unauthorized
		14,     // TypeMismatch
		18,     // AuthenticationFailed
		20,     // IllegalOperation: no transactions on a standalone server
		59,     // CommandNotFound
		72,     // InvalidOptions
		73,     // InvalidNamespace
		121,    // DocumentValidationFailure
		238,    // NotImplemented
		263,    // OperationNotSupportedInTransaction
		10334,  // BSONObjectTooLarge
		17419,  // the same for an update, up to MongoDB 6.0
		17420,  // and for an upsert
		17280,  // KeyTooLong
		8000,   // AtlasError
		85, 86, // IndexOptionsConflict, IndexKeySpecsConflict
		40, 28, 66, // ConflictingUpdateOperators, PathNotViable, ImmutableField
		40415, 40324, // unknown field, unknown stage
	}
	// codes with which a server says that it did not begin.
	notBegunCodes = []int{
		10107, // NotWritablePrimary
		13435, // NotPrimaryNoSecondaryOk
		13436, // NotPrimaryOrSecondary
		112,   // WriteConflict
		24,    // LockTimeout
		246,   // SnapshotUnavailable
	}
)

// Codes that say something about the deployment, not about the statement that met them:
// another statement meets the same. Behind a router each statement of a batch gets the
// shard's answer, so they come as errors of single statements, too.
var (
	transientCodes = []int{
		6, 7, 89, 9001, // HostUnreachable, HostNotFound, NetworkTimeout, SocketException
		24, 46, // LockTimeout, LockBusy
		50,      // MaxTimeMSExpired
		63, 150, // StaleShardVersion, StaleEpoch
		64,      // WriteConcernFailed
		91, 189, // ShutdownInProgress, PrimarySteppedDown
		112,           // WriteConflict
		117,           // ConflictingOperationInProgress
		133, 134, 202, // no such member, no majority yet, pool full
		175, 237, 239, 246, // QueryPlanKilled, CursorKilled, SnapshotTooOld, SnapshotUnavailable
		227, 249, 13388, // stale routing: the collection, the database, StaleConfig
		262,           // ExceededTimeLimit
		314, 357, 365, // a shard being refreshed, locked, TemporarilyUnavailable
		10107, 13435, 13436, // not the primary
		11600, 11601, 11602, // interrupted
		14031, // OutOfDiskSpace: a person frees some
	}
	deniedCodes = []int{
		13, 18, 391, // Unauthorized, AuthenticationFailed, ReauthenticationRequired
		59, 238, // CommandNotFound, NotImplemented
		8000, // AtlasError
	}
)

// ofDeployment says whether an error with that code would meet any other statement, too.
func ofDeployment(code int) bool {
	return slices.Contains(transientCodes, code) || slices.Contains(deniedCodes, code)
}

// Denied says whether the server refuses this client, whatever it writes: a person must
// mend that.
func Denied(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(deniedCodes, server.HasErrorCode)
}

// Final says whether the server has answered that it does not do it, and why it would
// answer the same again. An error of a class that is not known counts, if it is an answer.
func Final(err error) bool {
	var server mongo.ServerError
	switch {
	case Classify(err) == Fatal:
		return true
	case !errors.As(err, &server) || slices.ContainsFunc(transientCodes, server.HasErrorCode):
		return false
	case server.HasErrorLabel("NetworkError") || server.HasErrorLabel("RetryableWriteError"):
		return false
	}
	var command mongo.CommandError
	if errors.As(err, &command) {
		return command.Code != 0
	}
	var write mongo.WriteException
	return errors.As(err, &write) && write.WriteConcernError == nil
}

// Classify says what can be done about an error of a write.
func Classify(err error) Class {
	var fatal *FatalError
	var server mongo.ServerError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &fatal):
		return Fatal
	case mongo.IsDuplicateKeyError(err):
		return Duplicate
	case errors.As(err, &server):
		has := func(code int) bool { return server.HasErrorCode(code) }
		switch {
		case slices.ContainsFunc(fatalCodes, has):
			return Fatal
		case slices.ContainsFunc(notBegunCodes, has):
			return Retry
		default:
			return Ambiguous
		}
	case errors.Is(err, mongo.ErrClientDisconnected):
		return Fatal
	case isSelection(err):
		return Retry
	default:
		return Ambiguous
	}
}

// isSelection says whether no server or no connection could be chosen: nothing was sent.
func isSelection(err error) bool {
	var selection topology.ServerSelectionError
	var pool topology.WaitQueueTimeoutError
	return errors.As(err, &selection) || errors.As(err, &pool)
}

// IsDuplicate says whether a unique key refused the write.
func IsDuplicate(err error) bool { return mongo.IsDuplicateKeyError(err) }

// Unreachable says whether the error is the deployment's absence rather than its
// answer: network, timeout, no primary. Work goes on when it is back. A document that cannot
// be read is an answer.
func Unreachable(err error) bool {
	switch Classify(err) {
	case Retry, Ambiguous:
		return !errors.Is(err, context.Canceled) && !isUnreadable(err)
	default:
		return false
	}
}

// explain says what was tried, and turns the errors a person can mend into words.
func explain(err error, doing string) error {
	if err == nil {
		return nil
	}
	var server mongo.ServerError
	if errors.As(err, &server) {
		switch {
		case server.HasErrorCode(13):
			return &FatalError{Reason: doing + ": the database user has no permission (it needs readWrite on the database)", Err: err}
		case server.HasErrorCode(18):
			return &FatalError{Reason: doing + ": the server refused the user name or password", Err: err}
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
