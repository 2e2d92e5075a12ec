package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const childFile = "MSCHEDULER_TEST_EMBEDDED_CHILD"

// runAsChild makes this test binary the process that is killed: it writes as fast
// as it can to the file named by the environment and prints each acknowledged
// write.
func runAsChild() bool {
	path := os.Getenv(childFile)
	if path == "" {
		return false
	}
	if err := writeForever(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

const childWriters = 8

func writeForever(path string) error {
	s, err := Start(Options{Path: path})
	if err != nil {
		return err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
	if err != nil {
		return err
	}
	ctx := context.Background()
	c := client.Database("test").Collection("c")
	if _, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "n", Value: 1}}}); err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var wg sync.WaitGroup
	for w := range childWriters {
		wg.Go(func() {
			for n := 1; ; n++ {
				_, err := c.UpdateOne(ctx, byID(w), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}}, options.UpdateOne().SetUpsert(true))
				if err != nil {
					return
				}
				say("set %d %d", w, n)
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, n)
				// Two documents that are both there or not.
				session, err := client.StartSession()
				if err != nil {
					return
				}
				_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
					if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: id + "-a"}, {Key: "pair", Value: id}}); err != nil {
						return nil, err
					}
					return c.InsertOne(ctx, bson.D{{Key: "_id", Value: id + "-b"}, {Key: "pair", Value: id}})
				})
				session.EndSession(ctx)
				if err != nil {
					return
				}
				say("pair %s", id)
			}
		})
	}
	wg.Wait()
	return nil
}

// TestKillLosesNoAcknowledgedWrite kills a process at a random moment, some
// times over; MSCHEDULER_KILL_ROUNDS asks for more.
func TestKillLosesNoAcknowledgedWrite(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("MSCHEDULER_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	path := filepath.Join(t.TempDir(), "db")
	pairs := map[string]bool{}
	for round := range rounds {
		set := map[int]int{}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childFile+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 200+37*round {
				require.NoError(t, cmd.Process.Kill())
			}
			// What was printed before the kill counts, also what is still in the pipe.
			f := strings.Fields(lines.Text())
			switch {
			case len(f) == 3 && f[0] == "set":
				w, _ := strconv.Atoi(f[1])
				set[w], _ = strconv.Atoi(f[2])
			case len(f) == 2 && f[0] == "pair":
				pairs[f[1]] = true
			}
		}
		_ = cmd.Wait() // killed
		checkKilled(t, path, set, pairs)
	}
	t.Logf("%d rounds, %d transactions acknowledged", rounds, len(pairs))
}

func checkKilled(t *testing.T, path string, set map[int]int, pairs map[string]bool) {
	s, err := Start(Options{Path: path})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	c := connect(t, s).Database("test").Collection("c")
	for w, n := range set {
		require.GreaterOrEqual(t, number(t, c, t.Context(), w), n, "writer %d", w)
		require.NoError(t, c.FindOne(t.Context(), bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: n}}}, {Key: "_id", Value: w}},
			options.FindOne().SetHint("n_1")).Err(), "the index has it")
	}
	report := s.command(t, "test", bson.D{{Key: "validate", Value: "c"}})
	require.True(t, report.Lookup("valid").Boolean(), "%v", report)
	cur, err := c.Find(t.Context(), bson.D{{Key: "pair", Value: bson.D{{Key: "$exists", Value: true}}}})
	require.NoError(t, err)
	var docs []struct{ Pair string }
	require.NoError(t, cur.All(t.Context(), &docs))
	found := map[string]int{}
	for _, d := range docs {
		found[d.Pair]++
	}
	for pair, n := range found {
		require.Equal(t, 2, n, "half of pair %s", pair)
	}
	for pair := range pairs {
		require.Equal(t, 2, found[pair], "acknowledged pair %s", pair)
	}
}
