package store

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// insertNew stores new documents, each unless there is one of its id. existed are the indices of those.
// It is not for the caller's transaction, which a collision would end.
func insertNew[T any](ctx context.Context, coll *mongo.Collection, doing string, docs []T) (existed []int, err error) {
	if len(docs) == 0 {
		return nil, nil
	}
	raw := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		if raw[i], err = codec.Encode(doc); err != nil {
			return nil, &FatalError{Reason: doing, Err: err}
		}
	}
	_, err = coll.InsertMany(ctx, raw, options.InsertMany().SetOrdered(false))
	if collided, only := duplicates(err); only {
		return collided, nil
	}
	return nil, explain(err, doing)
}

// duplicates are the indices of writes that collided. only says that nothing else went wrong: another
// error beside those means that documents are missing.
func duplicates(err error) (collided []int, only bool) {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return nil, false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != duplicateKey {
			return nil, false
		}
		collided = append(collided, e.Index)
	}
	return collided, len(collided) > 0
}
