package embedded

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

func number(t *testing.T, c *mongo.Collection, ctx context.Context, id any) int {
	t.Helper()
	var doc struct{ N int }
	require.NoError(t, c.FindOne(ctx, byID(id)).Decode(&doc))
	return doc.N
}

func TestTransactionsThatCollideAreTriedAgain(t *testing.T) {
	client := connect(t, start(t, Options{}))
	c := client.Database("test").Collection("c")
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	require.NoError(t, err)
	const workers, each = 8, 20
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			session, err := client.StartSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer session.EndSession(context.Background())
			for range each {
				_, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
					var doc struct{ N int }
					if err := c.FindOne(ctx, byID(1)).Decode(&doc); err != nil {
						return nil, err
					}
					return c.UpdateOne(ctx, byID(1), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: doc.N + 1}}}})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, workers*each, number(t, c, t.Context(), 1))
}
