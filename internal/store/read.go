package store

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// The ways in which this package reads. doing is what an error says was tried.

func isNone(err error) bool { return errors.Is(err, mongo.ErrNoDocuments) }

// readOne decodes the first document that the query finds; there is false when it finds none.
func readOne[T any](ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o ...options.Lister[options.FindOneOptions]) (doc T, there bool, err error) {
	err = coll.FindOne(ctx, filter, o...).Decode(&doc)
	if isNone(err) {
		return doc, false, nil
	}
	return doc, err == nil, explain(err, doing)
}

// named is a document of which only the id is read.
type named struct {
	ID string `bson:"_id"`
}

// readIDs are the ids of the documents that the query finds.
func readIDs(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D) ([]string, error) {
	found, err := readAll[named](ctx, coll, doing, filter, options.Find().SetProjection(fields("_id")))
	return collect(found, func(n named) string { return n.ID }), err
}

// finds reports whether the query finds a document.
func finds(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOneOptionsBuilder) (bool, error) {
	_, there, err := readOne[bson.Raw](ctx, coll, doing, filter, o.SetProjection(fields("_id")))
	return there, err
}

// readAll decodes all documents that the query finds, and fails where it cannot decode one.
func readAll[T any](ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o ...options.Lister[options.FindOptions]) ([]T, error) {
	cur, err := coll.Find(ctx, filter, o...)
	if err != nil {
		return nil, explain(err, doing)
	}
	var docs []T
	return docs, explain(cur.All(ctx, &docs), doing)
}

// readKnown is [readOne] of a document that is known by a name; none is the error if there is none.
func readKnown[T any](ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, none error, name string, o ...options.Lister[options.FindOneOptions]) (*T, error) {
	doc, there, err := readOne[T](ctx, coll, doing, filter, o...)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%w: %s", none, name)
	}
	return &doc, nil
}

// aggregated decodes all that the pipeline makes of the collection, and fails where it cannot decode one.
func aggregated[T any](ctx context.Context, coll *mongo.Collection, doing string, pipeline mongo.Pipeline, o ...options.Lister[options.AggregateOptions]) (docs []T, err error) {
	cur, err := coll.Aggregate(ctx, pipeline, o...)
	if err == nil {
		err = cur.All(ctx, &docs)
	}
	return docs, explain(err, doing)
}

// decodeEach decodes the documents that the query finds one by one for take. bad gets those that this release cannot
// read; it may not keep them.
func decodeEach[T any](ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOptionsBuilder, take func(*T), bad func(bson.Raw, error)) error {
	return readEach(ctx, coll, doing, filter, o, func(raw bson.Raw) bool {
		doc := new(T)
		if err := codec.Decode(raw, doc); err != nil {
			bad(raw, err)
		} else {
			take(doc)
		}
		return true
	})
}

// readEach calls do for one document after the other until it returns false. It may keep a copy of a
// document, and not the document itself.
func readEach(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOptionsBuilder, do func(doc bson.Raw) bool) error {
	cur, err := coll.Find(ctx, filter, o)
	if err != nil {
		return explain(err, doing)
	}
	defer func() { _ = cur.Close(ctx) }() // the server's part of one that was cut off goes later, if not now
	for more := true; more && cur.Next(ctx); {
		more = do(cur.Current)
	}
	return explain(cur.Err(), doing)
}

// upsert changes the document of that id, and makes it where there is none.
func upsert(ctx context.Context, coll *mongo.Collection, doing string, id any, update bson.D) error {
	filter := bson.D{d("_id", id)}
	_, err := coll.UpdateOne(ctx, filter, update, options.UpdateOne().SetUpsert(true))
	if IsDuplicate(err) { // two first writers at once
		_, err = coll.UpdateOne(ctx, filter, update)
	}
	return explain(err, doing)
}

// collect is what f makes of each element of the list.
func collect[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, e := range list {
		out[i] = f(e)
	}
	return out
}

func d(key string, v any) bson.E { return bson.E{Key: key, Value: v} }

func in[T any](values []T) bson.D { return bson.D{d("$in", values)} }

// fields is a projection to those fields and the _id.
func fields(names ...string) bson.D {
	return collect(names, func(name string) bson.E { return d(name, 1) })
}

// exists and absent are the conditions that a document has a field, and that it does not.
var (
	exists = bson.D{d("$exists", true)}
	absent = bson.D{d("$exists", false)}
)
