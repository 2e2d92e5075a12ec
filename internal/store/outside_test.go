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
	inside := mongo.NewSessionContext(ctx, &mongo.Session{})
	require.True(t, InTransaction(inside))
	out := Outside(inside)
	require.False(t, InTransaction(out))
	require.Equal(t, "trace", out.Value(valueKey{}))
	want, _ := ctx.Deadline()
	got, _ := out.Deadline()
	require.Equal(t, want, got)
	cancel()
	require.ErrorIs(t, out.Err(), context.Canceled)
	require.Equal(t, t.Context(), Outside(t.Context()))
}
