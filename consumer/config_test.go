package consumer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

func TestANilIsRefusedByItsName(t *testing.T) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(t.Context())) }()
	refused := func(field string, err error) {
		t.Helper()
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
		require.ErrorContains(t, err, "nil")
	}
	asIs := func(h Handler) Handler { return h }
	_, err = New(Config{Database: client.Database("x"), Middleware: []Middleware{asIs, nil}})
	refused("middleware", err)
	require.ErrorContains(t, err, "at index 1")

	c, err := New(Config{Database: client.Database("x"), Middleware: []Middleware{asIs}})
	require.NoError(t, err)
	typ := model.NewType[int, int]("t")
	h := func(context.Context, *Task[int]) (int, error) { return 0, nil }
	refused("handler", Handle(c, typ, nil))
	refused("options[1]", Handle(c, typ, h, MaxConcurrency(1), nil))
	every := func(context.Context, *Execution) (any, error) { return nil, nil }
	refused("handler", HandleCategory(c, "post", nil))
	refused("options[0]", HandleCategory(c, "post", every, nil))
	require.Empty(t, c.types())
}
