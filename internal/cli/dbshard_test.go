package cli

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// router is a server that the session takes for mongos. The server behind it is always an
// embedded one: the test writes to its config database, as MongoDB does when it shards.
type router struct {
	sharded atomic.Int32 // how often shardCollection was asked for
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
	r := &router{}
	done, err := bson.Marshal(bson.D{{Key: "ok", Value: 1.0}})
	require.NoError(t, err)
	px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		switch command {
		case "shardCollection":
			collection := []string{"tasks", "task_history"}[r.sharded.Add(1)-1]
			_, err := db.Client().Database("config").Collection("collections").InsertOne(context.Background(), bson.D{
				{Key: "_id", Value: db.Name() + "." + collection}, {Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}},
			})
			if err != nil {
				return answer // the refusal of an embedded server
			}
			return done
		case "enableSharding", "createIndexes":
			return done
		default:
			return proxy.AsRouter(command, answer)
		}
	})
	s.ok("db", "migrate")
	s.uri = px.URI()
	return r
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
	require.Contains(t, done.stdout, `sharded by {"_id":"hashed"}`)
	require.EqualValues(t, 2, r.sharded.Load())
	require.Contains(t, s.ok("db", "shard", "--yes").stderr, "nothing to do")
	require.EqualValues(t, 2, r.sharded.Load())
	require.Contains(t, s.run("doctor").stdout, "tasks and history are distributed over the shards")

	var view struct{ Collections []shardView }
	s.ok("db", "shard", "--dry-run", "-o", "json").json(&view)
	require.Equal(t, []shardView{
		{Collection: "tasks", Key: `{"_id":"hashed"}`, Ready: true}, {Collection: "task_history", Key: `{"_id":"hashed"}`, Ready: true},
	}, view.Collections)
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
