package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// router is a server that the session takes for mongos. The server behind it is always an
// embedded one: the test writes to its config database, as MongoDB does when it shards.
type router struct {
	sharded atomic.Int32 // how often shardCollection was asked for
	tasks   atomic.Int64 // documents of the collection tasks when it was
	config  *mongo.Database

	forbids atomic.Bool // the user has readWrite and nothing else
}

func newRouter(t *testing.T, s *session) *router {
	t.Helper()
	server, err := engine.Embedded(embedded.Options{}).Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	px, err := proxy.Start(server.URI)
	require.NoError(t, err)
	t.Cleanup(px.Close)
	s.uri = server.URI
	db := database(t, s)
	r := &router{config: db.Client().Database("config")}
	for _, shard := range []string{"a", "b"} {
		_, err := r.config.Collection("shards").InsertOne(t.Context(), bson.D{{Key: "_id", Value: shard}})
		require.NoError(t, err)
	}
	done, err := bson.Marshal(bson.D{{Key: "ok", Value: 1.0}})
	require.NoError(t, err)
	forbidden, err := bson.Marshal(bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: 13}, {Key: "codeName", Value: "Unauthorized"}, {Key: "errmsg", Value: "not authorized"}})
	require.NoError(t, err)
	px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		switch command {
		case "shardCollection":
			collection := []string{"tasks", "task_history"}[r.sharded.Add(1)-1]
			n, err := db.Collection(collection).CountDocuments(context.Background(), bson.D{})
			if err != nil || r.shard(db.Name()+"."+collection, n == 0) != nil {
				return answer // the refusal of an embedded server
			}
			if collection == "tasks" {
				r.tasks.Store(n)
			}
			return done
		case "enableSharding", "createIndexes":
			if command == "enableSharding" && r.forbids.Load() {
				return forbidden
			}
			return done
		default:
			return proxy.AsRouter(command, answer)
		}
	})
	s.ok("db", "migrate")
	s.uri = px.URI()
	return r
}

// shard writes what MongoDB writes: an empty collection has chunks on each shard, another one chunk.
func (r *router) shard(namespace string, empty bool) error {
	uuid := bson.Binary{Subtype: 4, Data: []byte(fmt.Sprintf("%16.16s", namespace[len(namespace)-5:]))}
	_, err := r.config.Collection("collections").InsertOne(context.Background(), bson.D{
		{Key: "_id", Value: namespace}, {Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}}, {Key: "uuid", Value: uuid},
	})
	chunks := []any{bson.D{{Key: "uuid", Value: uuid}, {Key: "shard", Value: "a"}}}
	if empty {
		chunks = append(chunks, bson.D{{Key: "uuid", Value: uuid}, {Key: "shard", Value: "b"}}, bson.D{{Key: "uuid", Value: uuid}, {Key: "shard", Value: "b"}})
	}
	_, err2 := r.config.Collection("chunks").InsertMany(context.Background(), chunks)
	return errors.Join(err, err2)
}

func TestDBShardSaysWhatItWouldDoAsksAndCanBeRepeated(t *testing.T) {
	s := newSession(t)
	r := newRouter(t, s)
	require.Contains(t, s.run("doctor").stdout, "run: mscheduler db shard")

	dry := s.ok("db", "shard", "--dry-run")
	require.Contains(t, dry.stderr, `tasks by {_id: "hashed"}`)
	require.Contains(t, dry.stderr, `task_history by {_id: "hashed"}`)
	require.Contains(t, dry.stderr, "nothing was changed")
	s.fails(ExitUsage, []string{"pass --yes to confirm"}, "db", "shard")
	require.Zero(t, r.sharded.Load())

	done := s.ok("db", "shard", "--yes")
	require.Contains(t, done.stdout, `sharded by {"_id":"hashed"}, on 2 of 2 shards`)
	require.EqualValues(t, 2, r.sharded.Load())
	require.Zero(t, r.tasks.Load(), "MongoDB spreads only an empty collection at once")
	require.Contains(t, s.run("doctor").stdout, "all indexes are there", "the sentinel is back")
	require.Contains(t, s.ok("db", "shard", "--yes").stderr, "nothing to do")
	require.EqualValues(t, 2, r.sharded.Load())
	require.Contains(t, s.run("doctor").stdout, "tasks and history are distributed over the shards")

	var view struct{ Collections []shardView }
	s.ok("db", "shard", "--dry-run", "-o", "json").json(&view)
	require.Equal(t, []shardView{
		{Collection: "tasks", Key: `{"_id":"hashed"}`, Ready: true, Shards: 2}, {Collection: "task_history", Key: `{"_id":"hashed"}`, Ready: true, Shards: 2},
	}, view.Collections)
}

func TestDBShardOfACollectionWithTasksLeavesThemOnTheirShard(t *testing.T) {
	s := newSession(t)
	r := newRouter(t, s)
	s.ok("send", "mail")
	require.Contains(t, s.ok("db", "shard", "--yes").stdout, `on 1 of 2 shards`)
	require.EqualValues(t, 2, r.tasks.Load(), "the task and the sentinel")
	require.Contains(t, s.run("doctor").stdout, "tasks: sharded, but one of 2 shards holds every document")
}

func TestTheSentinelComesBackWhenShardingFails(t *testing.T) {
	s := newSession(t)
	r := newRouter(t, s)
	_, err := r.config.Collection("collections").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: s.database + ".tasks"}, {Key: "key", Value: bson.D{}}, {Key: "dropped", Value: true},
	})
	require.NoError(t, err)
	s.fails(ExitFailed, []string{"sharding tasks"}, "db", "shard", "--yes")
	require.Contains(t, s.run("doctor").stdout, "all indexes are there")
}

func TestDBShardNamesTheRoleThatItNeeds(t *testing.T) {
	s := newSession(t)
	r := newRouter(t, s)
	r.forbids.Store(true)
	s.fails(ExitRefused, []string{"enabling sharding of database", "it needs the role clusterManager"}, "db", "shard", "--yes")
}

func TestDBShardRefusesAnotherShardKey(t *testing.T) {
	s := newSession(t)
	r := newRouter(t, s)
	_, err := database(t, s).Client().Database("config").Collection("collections").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: s.database + ".tasks"}, {Key: "key", Value: bson.D{{Key: "type", Value: 1}}},
	})
	require.NoError(t, err)
	s.fails(ExitRefused, []string{`tasks is sharded by {"type":1}`, "reshardCollection"}, "db", "shard", "--yes")
	require.Zero(t, r.sharded.Load())
}

func TestDBShardRefusesWhatIsNotACluster(t *testing.T) {
	s := newSession(t)
	server, err := engine.Embedded(embedded.Options{}).Start(t.Context()) // MSCHEDULER_MONGODB_URI may name a cluster
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	s.uri = server.URI
	s.ok("db", "migrate")
	s.fails(ExitRefused, []string{"not a sharded cluster", "mongos"}, "db", "shard", "--yes")
}
