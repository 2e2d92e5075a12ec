// Package mongoerr holds the errors the embedded server answers with: a code,
// its name and a message, as MongoDB has them, so that a driver (and a caller
// who branches on codes) sees what it would see from MongoDB.
package mongoerr

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The MongoDB error codes the embedded server uses. Codes that MongoDB itself
// leaves unnamed ("Location40415") are written as plain numbers at their use.
var (
	InternalError              = named(1, "InternalError")
	BadValue                   = named(2, "BadValue")
	FailedToParse              = named(9, "FailedToParse")
	Unauthorized               = named(13, "Unauthorized")
	TypeMismatch               = named(14, "TypeMismatch")
	Overflow                   = named(15, "Overflow")
	InvalidLength              = named(16, "InvalidLength")
	IllegalOperation           = named(20, "IllegalOperation")
	InvalidBSON                = named(22, "InvalidBSON")
	NamespaceNotFound          = named(26, "NamespaceNotFound")
	IndexNotFound              = named(27, "IndexNotFound")
	PathNotViable              = named(28, "PathNotViable")
	CannotBackfillArray        = named(34, "CannotBackfillArray")
	ConflictingUpdateOperators = named(40, "ConflictingUpdateOperators")
	CursorNotFound             = named(43, "CursorNotFound")
	NamespaceExists            = named(48, "NamespaceExists")
	MaxTimeMSExpired           = named(50, "MaxTimeMSExpired")
	DollarPrefixedFieldName    = named(52, "DollarPrefixedFieldName")
	InvalidIDField             = named(53, "InvalidIdField")
	NotSingleValueField        = named(54, "NotSingleValueField")
	EmptyFieldName             = named(56, "EmptyFieldName")
	CommandNotFound            = named(59, "CommandNotFound")
	ImmutableField             = named(66, "ImmutableField")
	CannotCreateIndex          = named(67, "CannotCreateIndex")
	InvalidOptions             = named(72, "InvalidOptions")
	InvalidNamespace           = named(73, "InvalidNamespace")
	IndexOptionsConflict       = named(85, "IndexOptionsConflict")
	IndexKeySpecsConflict      = named(86, "IndexKeySpecsConflict")
	OperationFailed            = named(96, "OperationFailed")
	NotExactValueField         = named(111, "NotExactValueField")
	WriteConflict              = named(112, "WriteConflict")
	CannotIndexParallelArrays  = named(171, "CannotIndexParallelArrays")
	AmbiguousIndexKeyPattern   = named(181, "AmbiguousIndexKeyPattern")
	InvalidIndexOption         = named(197, "InvalidIndexSpecificationOption")
	TransactionTooOld          = named(225, "TransactionTooOld")
	CursorKilled               = named(237, "CursorKilled")
	NotImplementedCode         = named(238, "NotImplemented")
	NoSuchTransaction          = named(251, "NoSuchTransaction")
	TransactionCommitted       = named(256, "TransactionCommitted")
	TransactionTooLarge        = named(257, "TransactionTooLarge")
	OperationNotSupportedInTxn = named(263, "OperationNotSupportedInTransaction")
	InvalidResumeToken         = named(260, "InvalidResumeToken")
	ChangeStreamFatalError     = named(280, "ChangeStreamFatalError")
	ChangeStreamHistoryLost    = named(286, "ChangeStreamHistoryLost")
	QueryExceededMemoryLimit   = named(292, "QueryExceededMemoryLimitNoDiskUseAllowed")
	APIVersionError            = named(322, "APIVersionError")
	APIStrictError             = named(323, "APIStrictError")
	DuplicateKey               = named(11000, "DuplicateKey")
	InterruptedAtShutdown      = named(11600, "InterruptedAtShutdown")
	Interrupted                = named(11601, "Interrupted")
	BSONObjectTooLarge         = named(10334, "BSONObjectTooLarge")
	OutOfDiskSpace             = named(14031, "OutOfDiskSpace")
)

var names = map[int32]string{}

// named is a code with MongoDB's name of it.
func named(code int32, name string) int32 {
	names[code] = name
	return code
}

// Name returns MongoDB's name of a code; codes MongoDB leaves unnamed are
// called "Location" and the number.
func Name(code int32) string {
	if n, ok := names[code]; ok {
		return n
	}
	return fmt.Sprintf("Location%d", code)
}

// Error is an answer of MongoDB other than success.
type Error struct {
	Code    int32
	Name    string   // the code's name, as in codeName
	Message string   // what errmsg says
	Labels  []string // errorLabels for the driver (TransientTransactionError); nil for none
	Details bson.Raw // further fields of the answer: keyPattern and keyValue of a duplicate; nil for none
}

// Error returns the name and the message.
func (e *Error) Error() string { return e.Name + ": " + e.Message }

// New returns an Error of the code, its name looked up.
func New(code int32, format string, args ...any) *Error {
	return &Error{Code: code, Name: Name(code), Message: fmt.Sprintf(format, args...)}
}

// NotImplemented is the refusal (code 238) of a feature that MongoDB has and
// the embedded server has not. The feature is named as a user would write it
// ("$lookup", "collation").
func NotImplemented(feature string) *Error {
	return New(NotImplementedCode, "%s is not supported by the embedded server (it is by MongoDB)", feature)
}

// Code returns the MongoDB code of err: 0 for nil, InternalError when err is
// not (and does not wrap) an Error.
func Code(err error) int32 {
	if err == nil {
		return 0
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return InternalError
}
