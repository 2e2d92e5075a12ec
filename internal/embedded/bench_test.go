package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// fill stores n documents of about 350 bytes, the size and shape of a task.
func fill(b testing.TB, c *mongo.Collection, n int) {
	_, err := c.Indexes().CreateMany(b.Context(), []mongo.IndexModel{
		{Keys: bson.D{{Key: "type", Value: 1}, {Key: "audience", Value: 1}, {Key: "priority", Value: -1}, {Key: "due_at", Value: 1}},
			Options: options.Index().SetName("due").SetPartialFilterExpression(bson.D{{Key: "due_at", Value: bson.D{{Key: "$exists", Value: true}}}})},
		{Keys: bson.D{{Key: "type", Value: 1}, {Key: "lapse_at", Value: 1}},
			Options: options.Index().SetName("lapse").SetPartialFilterExpression(bson.D{{Key: "lapse_at", Value: bson.D{{Key: "$exists", Value: true}}}})},
	})
	require.NoError(b, err)
	for at := 0; at < n; at += 1000 {
		docs := make([]any, 0, 1000)
		for i := at; i < min(at+1000, n); i++ {
			docs = append(docs, benchDoc(i))
		}
		_, err := c.InsertMany(b.Context(), docs)
		require.NoError(b, err)
	}
}

func taskID(i int) string { return fmt.Sprintf("-/email.send/%012d", i) }

var benchStart = time.Unix(1_700_000_000, 0)

func benchDoc(i int) bson.D {
	return bson.D{
		{Key: "_id", Value: taskID(i)}, {Key: "type", Value: "email.send"}, {Key: "key", Value: fmt.Sprintf("%012d", i)},
		{Key: "tenant", Value: "-"}, {Key: "generation", Value: int64(1)}, {Key: "rev", Value: 1}, {Key: "priority", Value: 5},
		{Key: "status", Value: "New"}, {Key: "audience", Value: bson.A{"*"}}, {Key: "due_at", Value: benchStart.Add(time.Duration(i) * time.Millisecond)},
		{Key: "args", Value: bson.D{{Key: "text", Value: strings.Repeat("x", 100)}}}, {Key: "created_at", Value: benchStart},
	}
}

// BenchmarkServer goes through the driver. MSCHEDULER_BENCH_DOCS sets how many
// documents are there.
func BenchmarkServer(b *testing.B) {
	docs := EnvInt("MSCHEDULER_BENCH_DOCS", 10_000)
	for _, kind := range []string{"memory", "file"} {
		opt := Options{}
		if kind == "file" {
			opt.Path = filepath.Join(b.TempDir(), "db")
		}
		c := newDB(b, opt).Collection("tasks")
		fill(b, c, docs)
		run := func(name string, each int, op func(b *testing.B, i int)) {
			b.Run(fmt.Sprintf("%s %s %d", name, kind, docs), func(b *testing.B) {
				i := 0
				for b.Loop() {
					op(b, i)
					i++
				}
				b.ReportMetric(float64(each*b.N)/b.Elapsed().Seconds(), "docs/s")
			})
		}
		parallel := func(name string, op func(ctx context.Context, i int) error) {
			b.Run(fmt.Sprintf("%s %s %d", name, kind, docs), func(b *testing.B) {
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if err := op(b.Context(), i); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "docs/s")
			})
		}
		run("point read", 1, func(b *testing.B, i int) {
			require.NoError(b, c.FindOne(b.Context(), byID(taskID(i*7919%docs))).Err())
		})
		run("guarded update", 1, func(b *testing.B, i int) {
			res, err := c.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: taskID(i * 7919 % docs)}, {Key: "generation", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: "progress", Value: i}}}})
			require.NoError(b, err)
			require.EqualValues(b, 1, res.MatchedCount)
		})
		parallel("guarded update by 32", func(ctx context.Context, i int) error {
			_, err := c.UpdateOne(ctx, byID(taskID(i*7919%docs)), bson.D{{Key: "$inc", Value: bson.D{{Key: "progress", Value: 1}}}})
			return err
		})
		run("claim find 1000", 1000, func(b *testing.B, _ int) {
			cur, err := c.Find(b.Context(), bson.D{{Key: "type", Value: in("email.send", "other")}, {Key: "audience", Value: in("*", "w1")}, {Key: "due_at", Value: bson.D{{Key: "$lte", Value: benchStart.Add(time.Hour)}}}},
				options.Find().SetSort(bson.D{{Key: "priority", Value: -1}, {Key: "due_at", Value: 1}}).SetLimit(1000).SetBatchSize(1000).SetHint("due"))
			require.NoError(b, err)
			var got []bson.Raw
			require.NoError(b, cur.All(b.Context(), &got))
			require.Len(b, got, 1000)
		})
		run("group claim 1000", 1000, func(b *testing.B, i int) {
			ids := bson.A{}
			for k := range 1000 {
				ids = append(ids, taskID((i*1000+k)%docs))
			}
			claim := bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "Executing"}, {Key: "lapse_at", Value: benchStart.Add(time.Duration(i))}}}, {Key: "$unset", Value: bson.D{{Key: "due_at", Value: 1}}}}
			release := bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "New"}, {Key: "due_at", Value: benchStart}}}, {Key: "$unset", Value: bson.D{{Key: "lapse_at", Value: 1}}}}
			u := claim
			if i*1000/docs%2 == 1 {
				u = release
			}
			res, err := c.UpdateMany(b.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "generation", Value: bson.D{{Key: "$lte", Value: 5}}}, {Key: "rev", Value: 1}}, u)
			require.NoError(b, err)
			require.EqualValues(b, 1000, res.MatchedCount)
		})
		run("update batch 1000", 1000, func(b *testing.B, i int) {
			var models []mongo.WriteModel
			for k := range 1000 {
				models = append(models, mongo.NewUpdateOneModel().SetFilter(byID(taskID((i*1000+k)%docs))).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "result", Value: i}}}}))
			}
			_, err := c.BulkWrite(b.Context(), models, options.BulkWrite().SetOrdered(false))
			require.NoError(b, err)
		})
		n := docs
		run("insert", 1, func(b *testing.B, _ int) {
			_, err := c.InsertOne(b.Context(), benchDoc(n))
			require.NoError(b, err)
			n++
		})
		run("insert 1000", 1000, func(b *testing.B, _ int) {
			batch := make([]any, 1000)
			for k := range batch {
				batch[k] = benchDoc(n)
				n++
			}
			_, err := c.InsertMany(b.Context(), batch)
			require.NoError(b, err)
		})
		b.Run("change event "+kind, func(b *testing.B) { benchEvent(b, c.Database().Collection("events")) })
	}
}

// benchEvent reports how long an event takes to reach a client that waits for it.
func benchEvent(b *testing.B, c *mongo.Collection) {
	stream, err := c.Watch(b.Context(), mongo.Pipeline{})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	times := make(chan time.Duration)
	clk := clock.System()
	sent := make(chan time.Duration)
	reader.Go(func() {
		defer stream.Close(b.Context())
		for stream.Next(ctx) {
			times <- clk.Monotonic() - <-sent
		}
	})
	var all []time.Duration
	i := 0
	for b.Loop() {
		at := clk.Monotonic()
		_, err := c.InsertOne(b.Context(), bson.D{{Key: "at", Value: i}})
		require.NoError(b, err)
		i++
		sent <- at
		all = append(all, <-times)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
}

const childOpens = "MSCHEDULER_TEST_EMBEDDED_OPENS"

// openAsChild opens a file in a process of its own and says how long it took, what
// memory the process has then and what was the most, in kB.
func openAsChild(path string) error {
	clk := clock.System()
	at := clk.Monotonic()
	s, err := Start(Options{Path: path})
	if err != nil {
		return err
	}
	took := clk.Monotonic() - at
	status, err := os.ReadFile("/proc/self/status")
	fmt.Printf("opened in %v, %s\n", took, bytes.Join(regexp.MustCompile(`(VmRSS|VmHWM):\s+\d+`).FindAll(status, -1), []byte(", ")))
	return errors.Join(err, s.Close())
}

// TestManyDocumentsOpenInLittleMemory also reports how long it takes;
// MSCHEDULER_BENCH_DOCS says how many.
func TestManyDocumentsOpenInLittleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	docs := EnvInt("MSCHEDULER_BENCH_DOCS", 2000)
	path := filepath.Join(t.TempDir(), "db")
	s, err := Start(Options{Path: path})
	require.NoError(t, err)
	client := connect(t, s)
	fill(t, client.Database("test").Collection("tasks"), docs)
	require.NoError(t, client.Disconnect(t.Context()))
	require.NoError(t, s.Close())
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childOpens+"="+path)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%d documents: %s (%v of CPU time)", docs, bytes.TrimSpace(out), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	var peak int // kB
	_, err = fmt.Sscanf(string(out[bytes.Index(out, []byte("VmHWM:")):]), "VmHWM: %d", &peak)
	require.NoError(t, err)
	require.Less(t, peak, max(400_000, docs*12/10), "kB at most: 1.2 GB for a million documents of 350 bytes")
	s = start(t, Options{Path: path})
	require.Equal(t, docs, s.store.Snapshot().Collection("test.tasks").Len())
}
