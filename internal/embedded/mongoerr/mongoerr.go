// Package mongoerr holds the errors the embedded server answers with: a code,
// its name and a message, as MongoDB has them, so that a driver (and a caller
// who branches on codes) sees what it would see from MongoDB.
package mongoerr

import (
	"errors"
	"fmt"
)

// The MongoDB error codes the embedded server uses. Codes that MongoDB itself
// leaves unnamed ("Location40415") are written as plain numbers at their use.
const (
	InternalError              int32 = 1
	BadValue                   int32 = 2
	FailedToParse              int32 = 9
	Unauthorized               int32 = 13
	TypeMismatch               int32 = 14
	InvalidLength              int32 = 16
	NamespaceNotFound          int32 = 26
	IndexNotFound              int32 = 27
	PathNotViable              int32 = 28
	ConflictingUpdateOperators int32 = 40
	CursorNotFound             int32 = 43
	NamespaceExists            int32 = 48
	MaxTimeMSExpired           int32 = 50
	DollarPrefixedFieldName    int32 = 52
	InvalidIDField             int32 = 53
	NotSingleValueField        int32 = 54
	EmptyFieldName             int32 = 56
	CommandNotFound            int32 = 59
	ImmutableField             int32 = 66
	CannotCreateIndex          int32 = 67
	InvalidOptions             int32 = 72
	InvalidNamespace           int32 = 73
	IndexOptionsConflict       int32 = 85
	IndexKeySpecsConflict      int32 = 86
	OperationFailed            int32 = 96
	WriteConflict              int32 = 112
	CannotIndexParallelArrays  int32 = 171
	TransactionTooOld          int32 = 225
	NotImplementedCode         int32 = 238
	NoSuchTransaction          int32 = 251
	TransactionCommitted       int32 = 256
	TransactionTooLarge        int32 = 257
	OperationNotSupportedInTxn int32 = 263
	InvalidResumeToken         int32 = 260
	ChangeStreamFatalError     int32 = 280
	ChangeStreamHistoryLost    int32 = 286
	QueryExceededMemoryLimit   int32 = 292
	DuplicateKey               int32 = 11000
	InterruptedAtShutdown      int32 = 11600
	Interrupted                int32 = 11601
	BSONObjectTooLarge         int32 = 10334
	OutOfDiskSpace             int32 = 14031
)

var names = map[int32]string{
	InternalError: "InternalError", BadValue: "BadValue", FailedToParse: "FailedToParse",
	Unauthorized: "Unauthorized", TypeMismatch: "TypeMismatch", InvalidLength: "InvalidLength",
	NamespaceNotFound: "NamespaceNotFound", IndexNotFound: "IndexNotFound", PathNotViable: "PathNotViable",
	ConflictingUpdateOperators: "ConflictingUpdateOperators", CursorNotFound: "CursorNotFound",
	NamespaceExists: "NamespaceExists", MaxTimeMSExpired: "MaxTimeMSExpired",
	DollarPrefixedFieldName: "DollarPrefixedFieldName", InvalidIDField: "InvalidIdField",
	NotSingleValueField: "NotSingleValueField", EmptyFieldName: "EmptyFieldName",
	CommandNotFound: "CommandNotFound", ImmutableField: "ImmutableField", CannotCreateIndex: "CannotCreateIndex",
	InvalidOptions: "InvalidOptions", InvalidNamespace: "InvalidNamespace",
	IndexOptionsConflict: "IndexOptionsConflict", IndexKeySpecsConflict: "IndexKeySpecsConflict",
	OperationFailed: "OperationFailed", WriteConflict: "WriteConflict",
	CannotIndexParallelArrays: "CannotIndexParallelArrays", TransactionTooOld: "TransactionTooOld",
	NotImplementedCode: "NotImplemented", NoSuchTransaction: "NoSuchTransaction",
	TransactionCommitted: "TransactionCommitted", TransactionTooLarge: "TransactionTooLarge",
	OperationNotSupportedInTxn: "OperationNotSupportedInTransaction", InvalidResumeToken: "InvalidResumeToken",
	ChangeStreamFatalError: "ChangeStreamFatalError", ChangeStreamHistoryLost: "ChangeStreamHistoryLost",
	DuplicateKey: "DuplicateKey", QueryExceededMemoryLimit: "QueryExceededMemoryLimitNoDiskUseAllowed",
	InterruptedAtShutdown: "InterruptedAtShutdown", Interrupted: "Interrupted",
	BSONObjectTooLarge: "BSONObjectTooLarge", OutOfDiskSpace: "OutOfDiskSpace",
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
