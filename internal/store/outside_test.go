package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

type valueKey struct{}

func TestOutsideDropsTheSessionAndNothingElse(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "trace"), time.Hour)
	defer cancel()
	out := Outside(mongo.NewSessionContext(ctx, &mongo.Session{}))
	require.Nil(t, mongo.SessionFromContext(out))
	require.Equal(t, "trace", out.Value(valueKey{}))
	want, _ := ctx.Deadline()
	got, _ := out.Deadline()
	require.Equal(t, want, got)
	cancel()
	require.ErrorIs(t, out.Err(), context.Canceled)
	require.Equal(t, t.Context(), Outside(t.Context()))
}

func TestOnlyASessionWhoseTransactionRunsIsATransaction(t *testing.T) {
	client, err := mongo.Connect() // it never needs the server
	require.NoError(t, err)
	defer func() { _ = client.Disconnect(context.Background()) }()
	s, err := Open(Config{Database: client.Database("db")})
	require.NoError(t, err)
	session, err := client.StartSession()
	require.NoError(t, err)
	ctx := mongo.NewSessionContext(t.Context(), session)
	is := func(inside bool) {
		t.Helper()
		require.Equal(t, inside, InTransaction(ctx))
		require.Equal(t, inside, s.InRunningTransaction(ctx))
		require.Equal(t, inside, mongo.SessionFromContext(Inside(ctx)) != nil)
	}
	require.False(t, InTransaction(t.Context()))
	is(false)
	require.NoError(t, session.StartTransaction())
	is(true)
	require.NoError(t, session.AbortTransaction(t.Context()))
	is(false)
	require.NoError(t, session.StartTransaction())
	require.NoError(t, session.CommitTransaction(t.Context()))
	is(false)
}
