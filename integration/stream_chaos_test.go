package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/model"
)

// The size of the scenario: so many nodes, to so many streams, with kills for so long.
const (
	streamNodes   = "MSCHEDULER_STREAMS_NODES"
	streamMany    = "MSCHEDULER_STREAMS_MANY"
	streamSeconds = "MSCHEDULER_STREAMS_SECONDS"
)

const (
	streamAppenders = 4
	streamBatch     = 20 // nodes of an append, at most
)

var streamWork = model.NewType[string, model.None]("chaos.link")

// streamOf is the stream of an append of that number: every other one is to the first of them.
func streamOf(n, streams int) string {
	if n%2 == 0 || streams == 1 {
		return "0"
	}
	return fmt.Sprint(1 + n/2%(streams-1))
}

// streamPart are the nodes that an appender appends: in order, to one stream in each append.
type streamPart struct {
	group string
	nodes []graph.NodeSpec
}

// streamParts are those of an appender, the same whoever asks.
func streamParts(appender, nodes, streams int) (parts []streamPart) {
	r := rand.New(rand.NewPCG(uint64(appender), 7))
	for n := 0; n < nodes; {
		p := streamPart{group: streamOf(len(parts), streams)}
		for range min(1+r.IntN(streamBatch), nodes-n) {
			p.nodes = append(p.nodes, streamNode(fmt.Sprintf("a%d-%d", appender, n), r.IntN(8) == 0))
			n++
		}
		parts = append(parts, p)
	}
	return parts
}

func streamNode(id string, fails bool) graph.NodeSpec {
	args := id
	if fails {
		args += " fails"
	}
	return graph.NodeSpec{ID: id, Type: streamWork.Name(), Args: args, OnFailure: graph.Continue, Options: model.Options{
		Retry: &model.Retry{Strategy: model.RetryNone}, WorkerTimeout: time.Second, PingInterval: 250 * time.Millisecond, MaxLapses: new(1000),
	}}
}

// runLink is the handler of the nodes: it notes when it began and ended.
func runLink(db *mongo.Database) func(context.Context, *consumer.Task[string]) (model.None, error) {
	return func(ctx context.Context, task *consumer.Task[string]) (model.None, error) {
		mark := bson.D{{Key: "task", Value: task.TaskID}, {Key: "life", Value: task.Token.Generation}, {Key: "began", Value: time.Now()}}
		if ctx.Err() != nil {
			return model.None{}, consumer.Release()
		}
		// An insert that is cut off may be done all the same, and a released execution is not counted.
		if _, err := db.Collection("marks").InsertOne(context.WithoutCancel(ctx), mark); err != nil {
			return model.None{}, err
		}
		if strings.HasSuffix(task.Args, " fails") {
			return model.None{}, consumer.Fatal(errors.New("as it was told"))
		}
		return model.None{}, nil
	}
}

// TestStreamChild is no test: it is what the processes of the scenarios run.
func TestStreamChild(t *testing.T) {
	role, name, db := asChild(t, "stream-")
	f, err := flow.New(flow.Config{Database: db, Logger: zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)})
	require.NoError(t, err)
	switch role {
	case "stream-worker": // as work --flow
		c, err := consumer.New(consumer.Config{Database: db, WorkerID: name, Concurrency: 50})
		require.NoError(t, err)
		require.NoError(t, consumer.Handle(c, streamWork, runLink(db)))
		ended := make(chan error, 1)
		go func() { ended <- f.Run(t.Context()) }()
		require.NoError(t, c.Run(t.Context()))
		require.NoError(t, <-ended)
		return
	case "stream-engine":
		require.NoError(t, f.Run(t.Context()))
		return
	}
	var appender, nodes, streams int
	_, err = fmt.Sscanf(name, "appender-%d-%d-%d", &appender, &nodes, &streams)
	require.NoError(t, err)
	require.NoError(t, appendParts(t.Context(), db, f, appender, nodes, streams))
	require.NoError(t, f.Flush(t.Context()))
}

// appendParts appends all parts of an appender, and notes when each began first and was answered last.
func appendParts(ctx context.Context, db *mongo.Database, f *flow.Flows, appender, nodes, streams int) error {
	for k, p := range streamParts(appender, nodes, streams) { // from the beginning: nodes that exist stay as they are
		note := func(update bson.D) error {
			_, err := db.Collection("appends").UpdateByID(ctx, fmt.Sprint(appender, "-", k), update, options.UpdateOne().SetUpsert(true))
			return err
		}
		if err := note(bson.D{{Key: "$min", Value: bson.D{{Key: "began", Value: time.Now()}}}, {Key: "$inc", Value: bson.D{{Key: "tries", Value: 1}}}}); err != nil {
			return err
		}
		if _, err := f.Append(ctx, "chaos", p.group, p.nodes...); err != nil {
			return err
		}
		if err := note(bson.D{{Key: "$min", Value: bson.D{{Key: "answered", Value: time.Now()}}}}); err != nil {
			return err
		}
	}
	return nil
}

// Four processes append to one stream and to many, and are killed and frozen at random moments, as
// are the workers and the engines: each node runs, once, in the order of the appends, and never two of
// a stream at a time.
func TestStreamsKeepTheirOrderAlthoughProcessesDieAndFreeze(t *testing.T) {
	aloneWithRace(t)
	onEnginesAlone(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		nodes := number(t, streamNodes, e.Of(2000, 400)) / streamAppenders
		streams := number(t, streamMany, e.Of(100, 20))
		lasts := time.Duration(number(t, streamSeconds, 5)) * time.Second
		a.streamRager(nodes, streams).rage(lasts)
		f, err := flow.New(flow.Config{Database: a.db})
		require.NoError(t, err)
		for n := range streamAppenders { // what the appenders left
			require.NoError(t, appendParts(t.Context(), a.db, f, n, nodes, streams))
		}
		a.awaitQuietStreams()
		a.checkStreams(nodes, streams)
	})))
}

// streamRoles are the processes of the scenario.
var streamRoles = [...]string{"stream-appender", "stream-appender", "stream-appender", "stream-appender", "stream-worker", "stream-worker", "stream-engine"}

// streamRager starts the processes, and kills and freezes them.
func (a *arena) streamRager(nodes, streams int) *rager {
	started := 0
	c := &rager{arena: a, rand: rand.New(rand.NewPCG(rand.Uint64(), 1)), ends: true}
	c.freezes = func(int) bool { return c.rand.IntN(2) == 0 }
	c.begin = func(n int) *fleet.Process {
		started++
		name := fmt.Sprint(streamRoles[n], "-", started)
		if n < streamAppenders {
			name = fmt.Sprintf("appender-%d-%d-%d", n, nodes, streams)
		}
		return a.process("TestStreamChild", name, streamRoles[n], a.slowly(time.Duration(n%3)*time.Millisecond))
	}
	c.start(len(streamRoles))
	return c
}

// awaitQuietStreams waits until no node of a stream is left, as long as that goes on.
func (a *arena) awaitQuietStreams() {
	a.t.Helper()
	exists := bson.D{{Key: "$exists", Value: true}}
	a.awaitNone("marks", []left{
		{"nodes to link", "flow_nodes", bson.D{{Key: "no", Value: exists}}},
		{"streams that run", "flows", bson.D{{Key: "running_at", Value: exists}}},
		{"streams with plans", "flows", bson.D{{Key: "planned_at", Value: exists}}},
		{"nodes that go on", "flow_nodes", bson.D{{Key: "status", Value: bson.D{{Key: "$in", Value: bson.A{"INIT", "WAIT", "READY"}}}}}},
		{"tasks with an outbox", "tasks", bson.D{{Key: "outbox_at", Value: exists}, noSentinel}},
	})
}
