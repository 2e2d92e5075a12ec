package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestWhatIsRememberedOfAnUpsertKeepsNoDocument(t *testing.T) {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: 7}, {Key: "payload", Value: "long"}})
	require.NoError(t, err)
	id := bson.Raw(doc).Lookup("_id")
	var r Retry
	r.Add(0, Statement{N: 1, Upserted: id})
	require.Equal(t, id, r.Done[0].Upserted)
	require.NotSame(t, &id.Value[0], &r.Done[0].Upserted.Value[0])
}
