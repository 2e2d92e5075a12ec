package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/model"
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

// missing is the error of something that does not exist. We tell these errors apart; users know
// [model.ErrNotFound].
func missing(text string) error { return &missingError{text} }

type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }
func (e *missingError) Unwrap() error { return model.ErrNotFound }

// refusal is a [model.RefusedError] that we tell from others by its kind.
type refusal struct {
	kind error
	*model.RefusedError
}

func (e *refusal) Error() string   { return e.kind.Error() + ": " + e.ID }
func (e *refusal) Unwrap() []error { return []error{e.kind, e.RefusedError} }

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

// Codes with a meaning of their own here.
const (
	maxTimeExpired     = 50
	commandNotFound    = 59
	writeConcernFailed = 64
	writeConflict      = 112
	duplicateKey       = 11000
)

// ranOutCodes say that the time limit of an operation passed. A router of before MongoDB 5.0 may answer with
// one of its connection to the shard: 202 is NetworkInterfaceExceededTimeLimit, 262 ExceededTimeLimit.
var ranOutCodes = []int{maxTimeExpired, 202, 262}

// Codes that say something about the deployment, not about the statement that met them:
// another statement meets the same. Behind a router each statement of a batch gets the
// shard's answer, so they come as errors of single statements, too.
var (
	transientCodes = []int{
		6, 7, 89, 9001, // HostUnreachable, HostNotFound, NetworkTimeout, SocketException
		24, 46, // LockTimeout, LockBusy
		maxTimeExpired,
		63, 150, // StaleShardVersion, StaleEpoch
		writeConcernFailed,
		70, 82, 83, 94, // ShardNotFound, NoProgressMade, RemoteResultsUnavailable, NotYetInitialized
		43, 279, // CursorNotFound after a restart, ClientDisconnect
		91, 189, 333, // ShutdownInProgress, PrimarySteppedDown, ServiceExecutorInShutdown
		writeConflict,
		117, 267, 338, 414, // ConflictingOperationInProgress, and those of transactions, resharding, shards
		133, 134, 202, 317, 384, 407, // no such member, no majority yet, the router's connections
		175, 237, 239, 246, // QueryPlanKilled, CursorKilled, SnapshotTooOld, SnapshotUnavailable
		203, 205, 209, 210, 211, // sharding not initialized, cluster time, its keys after a failover
		215, 216, 264, // DatabaseDropPending, ElectionInProgress, TooManyFilesOpen
		227, 249, 250, 272, 13388, // stale routing: the collection, the database, its chunks, a migration, StaleConfig
		262, 290, // ExceededTimeLimit, TransactionExceededLifetimeLimitSeconds
		319, 342, 343, 406, 412, 453, // what a migration or resharding holds up for a moment
		355, 365, // InterruptedDueToStorageChange, TemporarilyUnavailable
		371,                     // UserWritesBlocked: a migration of clusters, a disk that is nearly full
		402, 433, 449, 450, 462, // ResourceExhausted; overloaded, in four ways
		10107, 13435, 13436, 10058, // not the primary
		11600, 11601, 11602, 46841, 91331, // interrupted
		12586, 12587, // BackgroundOperationInProgress
		14031, // OutOfDiskSpace: a person frees some
	}
	deniedCodes = []int{
		13, 18, 391, // Unauthorized, AuthenticationFailed, ReauthenticationRequired
		59, 238, // CommandNotFound, NotImplemented
		8000, // AtlasError
	}
	// documentCodes say something about the one document: what it would become.
	documentCodes = []int{
		2, 9, 14, 15, 22, // BadValue, FailedToParse, TypeMismatch, Overflow, InvalidBSON
		28, 40, 66, // PathNotViable, ConflictingUpdateOperators, ImmutableField
		52, 53, 55, 56, 57, // names of fields, ids and references
		116, 121, // DocTooLargeForCapped, DocumentValidationFailure
		171, 378, // CannotIndexParallelArrays, NonConformantBSON
		10334, 17419, 17420, // too large: since 7.0, up to 6.0, by an upsert
		17280, // KeyTooLong
	}
)

// ofDeployment says whether an error with that code would meet any other statement, too.
func ofDeployment(code int) bool {
	return slices.Contains(transientCodes, code) || slices.Contains(deniedCodes, code)
}

// OfDocument says whether the error of a single write is known to be about what the document
// would become. Another refusal of a single write may be a passing one, with a code that
// this release does not know.
func OfDocument(err error) bool {
	var write mongo.WriteError
	var one mongo.WriteException
	var bulk mongo.BulkWriteException
	var codes []int
	switch {
	case isWriteConcern(err):
		return false
	case errors.As(err, &write):
		codes = write.ErrorCodes()
	case errors.As(err, &one):
		codes = one.ErrorCodes()
	case errors.As(err, &bulk):
		codes = bulk.ErrorCodes()
	}
	other := func(code int) bool { return !slices.Contains(documentCodes, code) }
	return len(codes) > 0 && !slices.ContainsFunc(codes, other)
}

// Denied says whether the server refuses this client, whatever it writes: a person must
// mend that.
func Denied(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(deniedCodes, server.HasErrorCode)
}

// passingLabels are the labels of errors that pass, whatever their code.
var passingLabels = []string{"NetworkError", "RetryableWriteError", "RetryableError", "SystemOverloadedError"}

// Final says whether the server has answered that it does not do it, and why it would
// answer the same again. An error of a class that is not known counts, if it is an answer.
func Final(err error) bool {
	var server mongo.ServerError
	switch {
	case Classify(err) == Fatal:
		return true
	case !errors.As(err, &server) || slices.ContainsFunc(transientCodes, server.HasErrorCode):
		return false
	case slices.ContainsFunc(passingLabels, server.HasErrorLabel):
		return false
	}
	var command mongo.CommandError
	if errors.As(err, &command) {
		return command.Code != 0
	}
	var write mongo.WriteException
	var bulk mongo.BulkWriteException
	return errors.As(err, &write) && write.WriteConcernError == nil || errors.As(err, &bulk) && bulk.WriteConcernError == nil
}

// partError is the error of a command that did not begin, while another one of the same call may be carried out.
type partError struct{ error }

func (e *partError) Unwrap() error { return e.error }

// Classify says what can be done about an error of a write.
func Classify(err error) Class {
	var fatal *FatalError
	var part *partError
	var server mongo.ServerError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &fatal):
		return Fatal
	case errors.As(err, &part):
		return Ambiguous
	case errors.Is(err, ErrHeld):
		return Retry
	case isWriteConcern(err): // whatever the single writes met, nothing is known to last
		return Ambiguous
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

// isWriteConcern says whether the write, as far as it was done, may be undone by a failover.
func isWriteConcern(err error) bool {
	var write mongo.WriteException
	var bulk mongo.BulkWriteException
	return errors.As(err, &write) && write.WriteConcernError != nil || errors.As(err, &bulk) && bulk.WriteConcernError != nil
}

// isSelection says whether no server or no connection could be chosen: nothing was sent.
func isSelection(err error) bool {
	var selection topology.ServerSelectionError
	var pool topology.WaitQueueTimeoutError
	return errors.As(err, &selection) || errors.As(err, &pool)
}

// IsDuplicate says whether a unique key refused the write.
func IsDuplicate(err error) bool { return mongo.IsDuplicateKeyError(err) }

// Outage says whether the error only means that the deployment does not serve at the moment.
// Everything else is an answer that a person should read.
func Outage(err error) bool { return Unreachable(err) && !Final(err) }

// Away says whether an error proves an outage: no server answered, or none serves at the moment. An error
// that the driver makes before it sends anything is none, and neither is the end of a change stream, or a majority that
// lags behind a primary which has done what it was asked.
func Away(err error) bool {
	var server mongo.ServerError
	return Outage(err) && !lagsAlone(err) && (errors.As(err, &server) || isConnection(err) || isSelection(err) || mongo.IsTimeout(err))
}

// isConnection says whether there was no connection, or it broke. After one breaks, the driver closes the others, too.
func isConnection(err error) bool {
	var connection topology.ConnectionError
	var cleared driver.RetryablePoolError
	var closed topology.PoolError
	return errors.As(err, &connection) || errors.As(err, &cleared) || errors.As(err, &closed) || errors.Is(err, topology.ErrServerClosed)
}

// Unreachable says whether the same may succeed later: network, timeout, no primary, an
// answer that is not known to be fatal. A document that cannot be read is an answer, and so
// is one that somebody else holds ([ErrHeld]).
func Unreachable(err error) bool {
	switch Classify(err) {
	case Retry, Ambiguous:
		return !errors.Is(err, context.Canceled) && !isUnreadable(err) && !errors.Is(err, ErrHeld)
	default:
		return false
	}
}

// explain says what was tried, and turns the errors a person can mend into words.
func explain(err error, doing string) error {
	return explainNeeding(err, doing, "readWrite on the database")
}

// explainNeeding is [explain] for what needs other privileges.
func explainNeeding(err error, doing, privileges string) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.Canceled) {
		measure.Failures.Of(Classify(err).String()).Add(1)
	}
	var server mongo.ServerError
	if errors.As(err, &server) {
		switch {
		case server.HasErrorCode(13):
			return &FatalError{Reason: doing + ": the database user has no permission (it needs " + privileges + ")", Err: err}
		case server.HasErrorCode(18):
			return &FatalError{Reason: doing + ": the server refused the user name or password", Err: err}
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
