package store

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// hashedID is the shard key of the collections that grow with the load. Every point write
// names _id, so it goes to one shard, and the primary key stays unique over all of them.
var hashedID = bson.D{d("_id", "hashed")}

// shardedCollections are those that `mscheduler db shard` distributes, without the prefix.
// The others are small, read as a whole, or written once for each decision (flow_nodes, plan_results):
// they stay on the database's primary shard.
var shardedCollections = []string{"tasks", "task_history"}

// Sharding describes the distribution of one collection that should be sharded.
type Sharding struct {
	Collection string // with the prefix
	Key        string // its shard key as JSON; "" = not sharded
	Ready      bool   // it is sharded by the key that this release wants
}

// Sharding reads how the collections are distributed. It is for a connection to mongos.
// Reading it needs a role such as clusterMonitor. Index: _id of config.collections.
func (s *Store) Sharding(ctx context.Context) ([]Sharding, error) {
	var out []Sharding
	for _, name := range shardedCollections {
		one := Sharding{Collection: s.prefix + name}
		type config struct {
			Key          bson.D `bson:"key"`
			Dropped      bool   `bson:"dropped"`      // up to MongoDB 4.4: a collection that was
			Unsplittable bool   `bson:"unsplittable"` // since 8.0: known to the cluster, not sharded
		}
		doc, there, err := readOne[config](ctx, s.db.Client().Database("config").Collection("collections"),
			"reading how "+one.Collection+" is sharded", bson.D{d("_id", s.db.Name()+"."+one.Collection)})
		switch {
		case err != nil:
			return nil, err
		case there && !doc.Dropped && !doc.Unsplittable:
			key, err := bson.MarshalExtJSON(doc.Key, false, false)
			if err != nil {
				return nil, explain(err, "reading the shard key of "+one.Collection)
			}
			one.Key = string(key)
			one.Ready = slices.Equal(doc.Key, hashedID)
		}
		out = append(out, one)
	}
	return out, nil
}

// Shard shards one collection by the hash of _id. It can be repeated: the server accepts a
// collection that is sharded by that key already. A collection with documents needs the
// hashed index first.
func (s *Store) Shard(ctx context.Context, collection string) error {
	admin := s.db.Client().Database("admin")
	// Needed before MongoDB 6.0, harmless later.
	if err := admin.RunCommand(ctx, bson.D{d("enableSharding", s.db.Name())}).Err(); err != nil {
		return explain(err, "enabling sharding of database "+s.db.Name())
	}
	err := s.createIndexes(ctx, s.db.Collection(collection), mongo.IndexModel{
		Keys: hashedID, Options: options.Index().SetName("_id_hashed"),
	})
	if err != nil {
		return explain(err, "creating the hashed index of "+collection)
	}
	err = admin.RunCommand(ctx, bson.D{d("shardCollection", s.db.Name()+"."+collection), d("key", hashedID)}).Err()
	return explain(err, "sharding "+collection)
}
