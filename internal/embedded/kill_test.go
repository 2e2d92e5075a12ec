package embedded

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
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

// The environment of the process that is killed: its file, how many documents are
// in it and the number of the round.
const (
	childFile  = "MSCHEDULER_TEST_EMBEDDED_CHILD"
	childDocs  = "MSCHEDULER_TEST_EMBEDDED_DOCS"
	childRound = "MSCHEDULER_TEST_EMBEDDED_ROUND"
)

// runAsChild makes this test binary the process that is killed: it writes as fast
// as it can to the file named by the environment and prints each acknowledged
// write.
func runAsChild() bool {
	var err error
	if path := os.Getenv(childFile); path != "" {
		err = writeForever(path, EnvInt(childDocs, 0), EnvInt(childRound, 0))
	} else if path := os.Getenv(childOpens); path != "" {
		err = openAsChild(path)
	} else {
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

const childWriters = 8

func writeForever(path string, docs, round int) error {
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
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var wg sync.WaitGroup
	for w := range childWriters {
		wg.Go(func() {
			for n := round*1_000_000 + 1; ; n++ {
				doc := rand.IntN(docs/childWriters)*childWriters + w // nobody else writes it
				if _, err := c.UpdateOne(ctx, byID(doc), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}}); err != nil {
					return
				}
				say("set %d %d", doc, n)
				id := fmt.Sprintf("%d-%d", w, n)
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

// acknowledged is what clients were told.
type acknowledged struct {
	set   map[int]int // by document
	pairs map[string]bool
}

// TestKillLosesNoAcknowledgedWrite kills a process at a random moment, some times
// over; MSCHEDULER_KILL_ROUNDS and MSCHEDULER_KILL_DOCS ask for more.
func TestKillLosesNoAcknowledgedWrite(t *testing.T) {
	rounds, docs := EnvInt("MSCHEDULER_KILL_ROUNDS", 3), EnvInt("MSCHEDULER_KILL_DOCS", 2000)
	path := filepath.Join(t.TempDir(), "db")
	s, err := Start(Options{Path: path})
	require.NoError(t, err)
	client := connect(t, s)
	c := client.Database("test").Collection("c")
	_, err = c.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "n", Value: 1}}})
	require.NoError(t, err)
	for at := 0; at < docs; at += 1000 {
		var batch []any
		for i := at; i < min(at+1000, docs); i++ {
			batch = append(batch, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: 0}})
		}
		_, err := c.InsertMany(t.Context(), batch)
		require.NoError(t, err)
	}
	require.NoError(t, client.Disconnect(t.Context()))
	require.NoError(t, s.Close())
	told := acknowledged{map[int]int{}, map[string]bool{}}
	writes := 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childFile+"="+path, fmt.Sprintf("%s=%d", childDocs, docs), fmt.Sprintf("%s=%d", childRound, round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		end := 50 + rand.IntN(1500)
		for lines := bufio.NewScanner(out); lines.Scan(); writes++ {
			if end--; end == 0 {
				require.NoError(t, cmd.Process.Kill())
			}
			// What was printed before the kill counts, also what is still in the pipe.
			f := strings.Fields(lines.Text())
			switch {
			case len(f) == 3 && f[0] == "set":
				doc, _ := strconv.Atoi(f[1])
				told.set[doc], _ = strconv.Atoi(f[2])
			case len(f) == 2 && f[0] == "pair":
				told.pairs[f[1]] = true
			}
		}
		_ = cmd.Wait() // killed
		told.check(t, path, docs)
	}
	t.Logf("%d rounds over %d documents: %d writes acknowledged, %d of them transactions", rounds, docs, writes, len(told.pairs))
}

func (a acknowledged) check(t *testing.T, path string, docs int) {
	s, err := Start(Options{Path: path})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	report := s.command(t, "test", bson.D{{Key: "validate", Value: "c"}})
	require.True(t, report.Lookup("valid").Boolean(), "%v", report)
	client := connect(t, s)
	defer func() { require.NoError(t, client.Disconnect(t.Context())) }() // before the server goes: it would wait
	cur, err := client.Database("test").Collection("c").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	pairs, set := map[string]int{}, map[int]int{}
	for cur.Next(t.Context()) {
		if pair, ok := cur.Current.Lookup("pair").StringValueOK(); ok {
			pairs[pair]++
			continue
		}
		set[int(cur.Current.Lookup("_id").AsInt64())] = int(cur.Current.Lookup("n").AsInt64())
	}
	require.NoError(t, cur.Err())
	require.Len(t, set, docs)
	for doc, n := range a.set {
		require.GreaterOrEqual(t, set[doc], n, "document %d", doc)
	}
	for pair, n := range pairs {
		require.Equal(t, 2, n, "half of pair %s", pair)
	}
	for pair := range a.pairs {
		require.Equal(t, 2, pairs[pair], "acknowledged pair %s", pair)
	}
}
