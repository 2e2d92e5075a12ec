package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestAServerThatDoesNotKnowHelloYetIsAskedAsBefore(t *testing.T) {
	var asked []string
	answers := map[string]error{"hello": mongo.CommandError{Code: 59, Message: "no such command: 'hello'"}}
	run := func(command string) *mongo.SingleResult {
		asked = append(asked, command)
		return mongo.NewSingleResultFromDocument(bson.D{{Key: "setName", Value: "rs"}}, answers[command], nil)
	}
	var answer struct {
		SetName string `bson:"setName"`
	}
	require.NoError(t, hello(run, &answer))
	require.Equal(t, "rs", answer.SetName)
	require.Equal(t, []string{"hello", "isMaster"}, asked)

	answers["hello"] = mongo.CommandError{Code: 13}
	asked = nil
	require.Error(t, hello(run, &answer))
	require.Equal(t, []string{"hello"}, asked)
}
