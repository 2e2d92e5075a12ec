package proxy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// MongoDB documents these fields as common to all instances.
func TestAStandaloneServerHasSessions(t *testing.T) {
	whole, err := bson.Marshal(bson.D{{Key: "setName", Value: "rs"}, {Key: "topologyVersion", Value: bson.D{}}, {Key: "logicalSessionTimeoutMinutes", Value: 30}})
	require.NoError(t, err)
	var left bson.D
	require.NoError(t, bson.Unmarshal(AsStandalone("hello", whole), &left))
	require.Equal(t, bson.D{{Key: "topologyVersion", Value: bson.D{}}, {Key: "logicalSessionTimeoutMinutes", Value: int32(30)}}, left)
}
