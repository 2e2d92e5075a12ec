package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mscheduler/mscheduler/model"
)

func TestAnErrorsClassSaysWhatACallerCanDo(t *testing.T) {
	command := func(code int32) error { return mongo.CommandError{Code: code, Message: "no"} }
	doc, err := bson.Marshal(bson.D{{Key: "max_running", Value: "three"}})
	require.NoError(t, err)
	unread := bson.Unmarshal(doc, new(model.TaskType))
	for _, c := range []struct {
		name        string
		err         error
		class       Class
		unreachable bool
	}{
		{"nil", nil, OK, false},
		{"no server", topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}, Retry, true},
		{"no connection free", topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded}, Retry, true},
		{"no server, explained", explain(topology.ServerSelectionError{}, "trying"), Retry, true},
		{"connection lost", errors.New("EOF"), Ambiguous, true},
		{"out of time", context.DeadlineExceeded, Ambiguous, true},
		{"cancelled", fmt.Errorf("writing: %w", context.Canceled), Ambiguous, false},
		{"not primary", command(10107), Retry, true},
		{"stepped down in between", command(189), Ambiguous, true},
		{"interrupted", command(11600), Ambiguous, true},
		{"unauthorized", command(13), Fatal, false},
		{"unauthorized, explained", explain(command(13), "trying"), Fatal, false},
		{"unknown command", command(59), Fatal, false},
		{"not implemented", command(238), Fatal, false},
		{"too large", command(10334), Fatal, false},
		{"too large, up to 6.0", mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 17419}}}, Fatal, false},
		{"too large to upsert, up to 6.0", mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 17420}}}, Fatal, false},
		{"write concern", mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}}, Ambiguous, true},
		{"duplicate, not known to last", mongo.BulkWriteException{
			WriteErrors:       []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 11000}}},
			WriteConcernError: &mongo.WriteConcernError{Code: 64},
		}, Ambiguous, true},
		{"refused document", mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 121}}}, Fatal, false},
		{"duplicate", mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000}}}, Duplicate, false},
		{"a document that cannot be read", explain(unread, "reading"), Ambiguous, false},
		{"client closed", mongo.ErrClientDisconnected, Fatal, false},
		{"ours", &FatalError{Reason: "the schema is too new"}, Fatal, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.class, Classify(c.err), "%v", Classify(c.err))
			require.Equal(t, c.unreachable, Unreachable(c.err))
		})
	}
}

func TestAnErrorIsOfTheDocumentIfTheServerRefusesWhatItWouldBecome(t *testing.T) {
	write := func(codes ...int) (one mongo.WriteException, bulk mongo.BulkWriteException) {
		for _, code := range codes {
			one.WriteErrors = append(one.WriteErrors, mongo.WriteError{Code: code})
			bulk.WriteErrors = append(bulk.WriteErrors, mongo.BulkWriteError{WriteError: mongo.WriteError{Code: code}})
		}
		return one, bulk
	}
	refused, all := write(121, 17419)
	require.True(t, OfDocument(mongo.WriteError{Code: 121}))
	require.True(t, OfDocument(refused))
	require.True(t, OfDocument(all))
	require.True(t, OfDocument(explain(refused, "changing task t")))

	refused.WriteConcernError, all.WriteConcernError = &mongo.WriteConcernError{Code: 64}, &mongo.WriteConcernError{Code: 64}
	passing, some := write(121, 189)
	none, nothing := write()
	for _, err := range []error{nil, io.EOF, refused, all, passing, some, none, nothing, mongo.WriteError{Code: 189}, mongo.CommandError{Code: 121}} {
		require.False(t, OfDocument(err), "%v", err)
	}
}

func TestAnAnswerThatWouldBeTheSameAgainIsFinal(t *testing.T) {
	require.True(t, Final(mongo.CommandError{Code: 13}))
	require.True(t, Final(mongo.CommandError{Code: 999_999}), "an answer is an answer")
	require.True(t, Final(mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 999_999}}}))
	for _, passing := range []error{
		nil, errors.New("EOF"), context.DeadlineExceeded, mongo.CommandError{Code: 10107}, mongo.CommandError{Code: 189},
		mongo.CommandError{Labels: []string{"NetworkError"}}, mongo.CommandError{Code: 999_999, Labels: []string{"RetryableWriteError"}},
		mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 100}},
		mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 189}}},
		mongo.CommandError{Code: 999_999, Labels: []string{"SystemOverloadedError"}},
		mongo.CommandError{Code: 371},
	} {
		require.False(t, Final(passing), "%v", passing)
	}
}

func TestAnAnswerIsNoOutageWhateverItSays(t *testing.T) {
	for _, answer := range []error{
		mongo.CommandError{Code: 292}, mongo.CommandError{Code: 148}, mongo.CommandError{Code: 1}, mongo.CommandError{Code: 13},
	} {
		require.False(t, Outage(answer), "%v", answer)
	}
	for _, away := range []error{errors.New("EOF"), context.DeadlineExceeded, topology.ServerSelectionError{}, mongo.CommandError{Code: 10107}} {
		require.True(t, Outage(away), "%v", away)
	}
	require.False(t, Outage(nil))
}

// clearedPoolError is what the driver says, with a type of its own, of calls beside one whose connection broke.
type clearedPoolError struct{}

func (clearedPoolError) Error() string {
	return "connection pool was cleared because another operation failed"
}
func (clearedPoolError) Retryable() bool { return true }

func TestOnlyTheNetworkATimeoutOrAServerProvesAnOutage(t *testing.T) {
	for _, away := range []error{
		context.DeadlineExceeded, driver.ErrDeadlineWouldBeExceeded, topology.ServerSelectionError{}, topology.WaitQueueTimeoutError{},
		topology.ConnectionError{Wrapped: io.EOF}, clearedPoolError{}, topology.ErrPoolClosed, topology.ErrServerClosed, mongo.CommandError{Labels: []string{"NetworkError"}},
		mongo.CommandError{Labels: []string{driver.TransientTransactionError}, Message: "connection pool is paused"},
		mongo.CommandError{Code: 10107}, mongo.CommandError{Code: 189}, mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}},
	} {
		require.True(t, Away(away), "%v", away)
		require.True(t, Away(explain(away, "trying")), "%v", away)
	}
	for _, other := range []error{
		nil, context.Canceled, errors.New("MaxAwaitTime must be less than the operation timeout"),
		errors.New("current topology does not support sessions"), ErrStreamEnded, ErrHeld,
		mongo.CommandError{Code: 13}, mongo.CommandError{Code: 999_999},
	} {
		require.False(t, Away(other), "%v", other)
	}
}

func TestAnErrorThatAPersonCanMendSaysHow(t *testing.T) {
	err := explain(mongo.CommandError{Code: 13, Message: "not authorized on x"}, "finding due tasks")
	require.ErrorContains(t, err, "finding due tasks: the database user has no permission")
	require.ErrorContains(t, err, "not authorized on x")
	require.NotErrorIs(t, err, model.ErrInvalid)
	require.NoError(t, explain(nil, "anything"))
}
