package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// AwaitPrimary waits until the deployment takes writes, for a minute at most.
func AwaitPrimary(ctx context.Context, uri string) error {
	return withAdmin(uri, func(admin *mongo.Database) error { return awaitPrimary(ctx, admin) })
}

// withAdmin calls f with the admin database of a client of its own.
func withAdmin(uri string, f func(admin *mongo.Database) error) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(2 * time.Second))
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	err = f(client.Database("admin"))
	return errors.Join(err, client.Disconnect(context.Background()))
}

const (
	startTime = time.Minute
	lookEvery = 50 * time.Millisecond
)

func awaitPrimary(ctx context.Context, admin *mongo.Database) error {
	return retry(ctx, "waiting for a primary", func(ctx context.Context) error {
		var hello struct {
			Writable bool `bson:"isWritablePrimary"`
		}
		err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
		if err == nil && !hello.Writable {
			err = errors.New("the server answers, but takes no writes")
		}
		return err
	})
}

// retry repeats f until it succeeds, ctx ends or the start has taken too long.
func retry(ctx context.Context, doing string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // what the end of ctx cut off says nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", doing, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}
