// Package dropdb drops databases of one's own, also for users who may not drop databases.
package dropdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// unauthorized and atlasError are codes by which a server refuses a command to a user.
const (
	unauthorized = 13
	atlasError   = 8000
)

// Drop drops the database. The roles readWrite and readWriteAnyDatabase allow only to drop its collections,
// which comes to the same: a database without collections does not exist.
func Drop(ctx context.Context, db *mongo.Database) error {
	err := db.Drop(ctx)
	var server mongo.ServerError
	if !errors.As(err, &server) || !server.HasErrorCode(unauthorized) && !server.HasErrorCode(atlasError) {
		return err
	}
	names, failed := db.ListCollectionNames(ctx, bson.D{})
	if failed != nil {
		return errors.Join(err, failed)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "system.") {
			continue // the server's own
		}
		if failed := db.Collection(name).Drop(ctx); failed != nil {
			return errors.Join(err, fmt.Errorf("dropping the collection %s: %w", name, failed))
		}
	}
	return nil
}
