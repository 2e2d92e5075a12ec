package store

import (
	"context"
	"errors"
	"slices"
	"time"

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
	Shards     int    // number of shards that have a part of it; 0 = not sharded
}

// The privileges beside readWrite that these functions need.
const (
	toReadSharding = "find on the database config, as by the role clusterMonitor"
	toShard        = "the role clusterManager, or the action enableSharding on the database and find on the database config"
)

// Sharding reads how the collections are distributed, and the number of shards of the cluster. It is for a
// connection to mongos. It reads the database config. Index: _id of its collections, uuid or ns of its chunks.
func (s *Store) Sharding(ctx context.Context) (all []Sharding, shards int, err error) {
	for _, name := range shardedCollections {
		one, err := s.shardingOf(ctx, s.prefix+name)
		if err != nil {
			return nil, 0, explainNeeding(err, "reading how "+one.Collection+" is sharded", toReadSharding)
		}
		all = append(all, one)
	}
	n, err := s.db.Client().Database("config").Collection("shards").CountDocuments(ctx, bson.D{})
	return all, int(n), explainNeeding(err, "counting the shards of the cluster", toReadSharding)
}

func (s *Store) shardingOf(ctx context.Context, collection string) (Sharding, error) {
	out, namespace := Sharding{Collection: collection}, s.db.Name()+"."+collection
	config := s.db.Client().Database("config")
	var doc struct {
		Key          bson.D        `bson:"key"`
		UUID         bson.RawValue `bson:"uuid"`
		Dropped      bool          `bson:"dropped"`      // up to MongoDB 4.4: a collection that was
		Unsplittable bool          `bson:"unsplittable"` // since 8.0: known to the cluster, not sharded
	}
	err := config.Collection("collections").FindOne(ctx, bson.D{d("_id", namespace)}).Decode(&doc)
	if isNone(err) || err == nil && (doc.Dropped || doc.Unsplittable) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	key, err := bson.MarshalExtJSON(doc.Key, false, false)
	if err != nil {
		return out, err
	}
	out.Key, out.Ready = string(key), slices.Equal(doc.Key, hashedID)
	chunks := bson.D{d("ns", namespace)} // up to MongoDB 4.4
	if !doc.UUID.IsZero() {
		chunks = bson.D{d("$or", bson.A{chunks, bson.D{d("uuid", doc.UUID)}})}
	}
	cur, err := config.Collection("chunks").Aggregate(ctx, mongo.Pipeline{{d("$match", chunks)}, {d("$group", bson.D{d("_id", "$shard")})}})
	if err != nil {
		return out, err
	}
	var on []named
	err = cur.All(ctx, &on)
	out.Shards = len(on)
	return out, err
}

// sentinelTime bounds the write that puts the sentinel back, also after an interrupt.
const sentinelTime = 30 * time.Second

// Shard shards one collection by the hash of _id. It can be repeated: the server accepts a
// collection that is sharded by that key already. A collection with documents needs the
// hashed index first.
//
// MongoDB spreads only an empty collection over the shards at once. So tasks has no sentinel meanwhile, if it has
// no task. If the process dies then, the sentinel is missing; doctor and db status say so, and db migrate stores it
// again.
func (s *Store) Shard(ctx context.Context, collection string) (err error) {
	admin := s.db.Client().Database("admin")
	// Needed before MongoDB 6.0, harmless later.
	if err := admin.RunCommand(ctx, bson.D{d("enableSharding", s.db.Name())}).Err(); err != nil {
		return explainNeeding(err, "enabling sharding of database "+s.db.Name(), toShard)
	}
	err = s.createIndexes(ctx, s.db.Collection(collection), mongo.IndexModel{
		Keys: hashedID, Options: options.Index().SetName("_id_hashed"),
	})
	if err != nil {
		return explain(err, "creating the hashed index of "+collection)
	}
	if collection == s.tasks.Name() {
		some, err := finds(ctx, s.tasks, "looking for tasks", bson.D{present}, options.FindOne())
		if err != nil {
			return err
		}
		if !some {
			if err := s.removeSentinel(ctx); err != nil {
				return err
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sentinelTime)
				defer cancel()
				err = errors.Join(err, s.putSentinel(ctx))
			}()
		}
	}
	err = admin.RunCommand(ctx, bson.D{d("shardCollection", s.db.Name()+"."+collection), d("key", hashedID)}).Err()
	return explainNeeding(err, "sharding "+collection, toShard)
}
