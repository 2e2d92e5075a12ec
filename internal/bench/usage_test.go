package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
)

// tasksOf is how many tasks the commands of one purpose found or named.
func tasksOf(c *Calls) float64 { return float64(c.Commands) * *c.MeanSize }

func TestADrainCountsItsFindsClaimsAndEnds(t *testing.T) {
	t.Parallel()
	c := config(t, "preloaded", "fleet")
	p, err := proxy.Start(deployed(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.Patient() // a write that runs out of its short time, as on a busy machine, is tried again
	c.URI = p.URI()
	for name, r := range all(t, c) {
		for what, c := range map[string]*Calls{"finds": r.Finds, "claims": r.Claims, "ends": r.Ends} {
			require.NotNil(t, c, "%s of %s", what, name)
			require.Positive(t, *c.MeanMS, "%s of %s", what, name)
		}
		require.LessOrEqual(t, r.Finds.Commands, r.Commands["find"])
		require.LessOrEqual(t, r.Claims.Commands+r.Ends.Commands, r.Commands["update"])
		require.GreaterOrEqual(t, tasksOf(r.Claims), 60*(*r.ClaimsAttemptedPerWon)-0.5, "a command of claims may be sent again on a busy machine")
		require.InDelta(t, 60, tasksOf(r.Ends), 0.5)
		require.GreaterOrEqual(t, tasksOf(r.Finds), 59.5, "each task is found at least once")
		require.Contains(t, strings.Join(r.Notes, "\n"), fmt.Sprintf("claims %d (mean ", r.Claims.Commands))
	}
}

func TestTheServersProcessorTimeIsToldFromThatOfWorkersApart(t *testing.T) {
	t.Parallel()
	r := all(t, config(t, "preloaded"))["preloaded"]
	require.Positive(t, *r.ServerCPU)
	require.Positive(t, *r.ClientCPU)
	require.Contains(t, strings.Join(r.Notes, "\n"), "processor time a task: server ")

	c := config(t, "preloaded")
	c.Executable = "" // the worker is a goroutine beside the server
	r = all(t, c)["preloaded"]
	require.Nil(t, r.ServerCPU)
	require.Nil(t, r.ClientCPU)
	require.Contains(t, strings.Join(r.Notes, "\n"), "unknown: the workers run in the server's process")
}

// reporting is an embedded server that answers serverStatus as MongoDB does, by a proxy.
func reporting(t *testing.T, status func() bson.D) string {
	t.Helper()
	p, err := proxy.Start(deployed(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		if command != "serverStatus" {
			return answer
		}
		doc, err := bson.Marshal(append(status(), bson.E{Key: "ok", Value: 1}))
		if err != nil {
			panic(err)
		}
		return doc
	})
	return p.URI()
}

func TestAServerThatReportsItselfIsMeasured(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := config(t, "preloaded")
	c.URI = reporting(t, func() bson.D {
		return bson.D{
			{Key: "pid", Value: int64(1 << 30)}, {Key: "process", Value: "mongod"}, {Key: "uptimeMillis", Value: int64(1)},
			{Key: "metrics", Value: bson.D{{Key: "queryExecutor", Value: bson.D{
				{Key: "scanned", Value: asked.Add(1) * 150}, {Key: "scannedObjects", Value: asked.Load() * 90},
			}}}},
		}
	})
	r := all(t, c)["preloaded"]
	require.Equal(t, 2.5, *r.KeysExamined, "150 keys for 60 tasks between two looks")
	require.Equal(t, 1.5, *r.DocsExamined)
	require.Nil(t, r.ServerCPU)
	require.NotNil(t, r.ClientCPU)
	notes := strings.Join(r.Notes, "\n")
	require.Contains(t, notes, "processor time of the server: unknown: ")
	require.Contains(t, notes, "examined a task: 2.50 index keys, 1.50 documents")
}

func TestEachTaskOfADrainWithResultsEndsWithAResultOfItsOwn(t *testing.T) {
	t.Parallel()
	c := config(t, "preloaded")
	c.URI, c.Results = deployed(t), true
	client, err := mongo.Connect(options.Client().ApplyURI(c.URI))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(t.Context())) }()
	var results, kept []int64
	c.OnProgress = func(_, step string, done, total int) {
		coll := "tasks"
		if step == "raw writes" && done == total {
			coll = rawPrefix + coll
		} else if step != "draining" || done < total {
			return
		}
		for result := range c.resultsIn(t, client, coll) {
			if coll == "tasks" {
				results = append(results, result)
			} else {
				kept = append(kept, result)
			}
		}
	}
	all(t, c)
	slices.Sort(results)
	require.Len(t, slices.Compact(results), 60)
	require.Len(t, kept, 120, "so do those of the yardstick, before and after")
}

// resultsIn yields the results in a collection, those that are equal once.
func (c *Config) resultsIn(t *testing.T, client *mongo.Client, coll string) map[int64]struct{} {
	t.Helper()
	out := map[int64]struct{}{}
	var values []int64
	res := client.Database(c.Database).Collection(coll).Distinct(t.Context(), "result", bson.D{})
	require.NoError(t, res.Decode(&values))
	for _, v := range values {
		out[v] = struct{}{}
	}
	return out
}

func TestADistantServerIsMeasuredInTheSameRun(t *testing.T) {
	t.Parallel()
	c := config(t, "preloaded")
	c.RTT = 5 * time.Millisecond
	out := all(t, c)
	require.Len(t, out, 2)
	near, far := out["preloaded"], out["preloaded/rtt"]
	drained(t, near, 60)
	drained(t, far, 60)
	for _, calls := range []*Calls{far.Finds, far.Claims, far.Ends} {
		require.GreaterOrEqual(t, *calls.MeanMS, 5.0)
	}
	require.Contains(t, strings.Join(far.Notes, "\n"), "with 5ms more a round trip: ")
	require.Contains(t, strings.Join(far.Notes, "\n"), " of the rate of preloaded")
}

func TestADistantServerIsReachedAsTheNearOne(t *testing.T) {
	near := deployed(t)
	d, err := distant(strings.Replace(near, "mongodb://", "mongodb://u:p%40@", 1)+"&authSource=x", time.Millisecond)
	require.NoError(t, err)
	defer d.Close()
	require.Contains(t, d.uri, "mongodb://u:p%40@127.0.0.1:")
	require.Contains(t, d.uri, "authSource=x")
	for _, uri := range []string{"mongodb://a,b/", "mongodb+srv://a/", "mongodb://a/?tls=true", "mongodb://a/?ssl=true"} {
		c := Config{URI: uri, RTT: time.Millisecond}
		require.ErrorContains(t, c.Validate(), "--rtt needs a connection string", uri)
	}
}

func TestAnotherBuildIsMeasuredInTheSameRun(t *testing.T) {
	t.Parallel()
	c := config(t, "fleet")
	c.Against, c.Executable = c.Executable, filepath.Join(t.TempDir(), "this build")
	require.NoError(t, os.Symlink(c.Against, c.Executable))
	out := all(t, c)
	require.Len(t, out, 2)
	for _, r := range out {
		drained(t, r, 60)
		require.Equal(t, 2, r.Processes)
	}
	require.Contains(t, strings.Join(out["fleet/against"].Notes, "\n"), "the other build: ")

	c.Against = filepath.Join(t.TempDir(), "missing")
	require.ErrorContains(t, Run(t.Context(), c, func(Result) error { return nil }), "--against is", "found before anything is measured")
}
