package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/server"
)

// TestServeChild is a process that serves the REST API, until it is killed.
func TestServeChild(t *testing.T) {
	_, name, db := asChild(t, "serve")
	api := serving(t, db)
	listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = db.Collection("addresses").InsertOne(t.Context(), bson.D{{Key: "_id", Value: name}, {Key: "address", Value: listen.Addr().String()}})
	require.NoError(t, err)
	served := &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	require.NoError(t, served.Serve(listen))
}

func serving(t *testing.T, db *mongo.Database) *server.Server {
	t.Helper()
	api, err := server.New(server.Config{Database: db, NoTokens: true})
	require.NoError(t, err)
	return api
}

// A server dies after each write of a request. A client that repeats the request, with its
// Idempotency-Key, has created everything once, and gets the same answer from then on.
func TestWhatAServerThatDiesWasAskedToCreateIsCreatedOnceByARepetition(t *testing.T) {
	t.Parallel()
	keyed := map[string]asking{}
	for what, c := range creations {
		c.keyed = true
		keyed[what] = c
	}
	killed(t, keyed)
}

// The same of changes that take no Idempotency-Key: the repetition either makes the change, or is refused since
// it was made.
func TestAChangeOfAServerThatDiesIsMadeOnceByARepetition(t *testing.T) {
	t.Parallel()
	killed(t, changes)
}

// alwaysKilled are some requests of each door and of each kind of write. The others are for make long, since each of them
// starts a server for each of its writes.
var alwaysKilled = []string{
	"tasks", "a plan", "a flow", "nodes", "past runs", "a job", "a type's end",
	"an update", "a retry", "a rule's change", "an answer", "a plan's cancel", "a completion", "a pause",
}

func TestEveryRequestThatIsAlwaysKilledIsThere(t *testing.T) {
	for _, what := range alwaysKilled {
		_, creates := creations[what]
		_, change := changes[what]
		require.True(t, creates || change, what)
	}
}

// killed kills a server after each write of the requests, before it knows of it. Before a write all is as after
// the one before it.
func killed(t *testing.T, asked map[string]asking) {
	t.Helper()
	for what, c := range asked {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // the others wait for processes, too
			onEnginesAlone(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
				if e.rest && os.Getenv(longVariable) == "" && !slices.Contains(alwaysKilled, what) {
					t.Skip("its writes are like those of other requests: make long has it")
				}
				died := 0
				for _, command := range []string{"insert", "update", "findAndModify", "delete"} {
					for skip := 0; dies(t, e, c, proxy.Rule{Command: command, Do: proxy.HoldAfter, Skip: skip}); skip++ {
						died++
					}
				}
				require.Positive(t, died)
				t.Logf("died in %d writes", died)
			})))
		})
	}
}

// dies has a server die in a write, and reports whether it came to that.
func dies(t *testing.T, e Engine, c asking, in proxy.Rule) bool {
	t.Helper()
	a := newArena(t, e)
	px, _ := a.behind()
	child := a.process("TestServeChild", "server", "serve", px.URI())
	var at struct {
		Address string `bson:"address"`
	}
	awaitTrue(t, func() string {
		if err := a.db.Collection("addresses").FindOne(t.Context(), bson.D{}).Decode(&at); err != nil {
			return err.Error()
		}
		return ""
	})
	url := "http://" + at.Address
	for i, before := range append([]asking{{path: "/tasks", body: `{"type": "other"}`}}, c.before...) { // from here on it writes what it is asked for
		answer, err := before.send(t.Context(), url, fmt.Sprint("before-", i))
		require.NoError(t, err)
		c = c.named(answer)
	}
	trap := px.Set(in)
	answered, told := make(chan error, 1), ""
	go func() {
		var err error
		told, err = c.send(t.Context(), url, "request-1")
		answered <- err
	}()
	died := false
	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-trap.Hit():
		died = true
		child.Kill()
		if <-answered != nil { // not a write beside the answer
			told = ""
		}
	case <-time.After(chaosPatience):
		require.FailNow(t, "neither the write nor the answer came")
	}
	px.Clear()

	api := serving(t, a.db)
	other := httptest.NewServer(api)
	defer func() {
		other.Close()
		require.NoError(t, api.Close(context.Background()))
	}()
	first, err := c.send(t.Context(), other.URL, "request-1")
	if c.refused != 0 && err != nil {
		require.ErrorContains(t, err, strconv.Itoa(c.refused), "the change was made before")
	} else {
		require.NoError(t, err)
	}
	if c.keyed {
		again, err := c.send(t.Context(), other.URL, "request-1")
		require.NoError(t, err)
		require.Equal(t, first, again)
		if told != "" {
			require.Equal(t, told, first, "the answer of the server that died")
		}
	}
	// The decision was made, and its server died before it carried it out: that is an engine's work then.
	flows, err := flow.New(flow.Config{Database: a.db})
	require.NoError(t, err)
	plans, err := plan.New(plan.Config{Database: a.db})
	require.NoError(t, err)
	for _, drain := range []func(context.Context, time.Time) (time.Time, bool, error){flows.Drain, plans.Drain} {
		_, _, err := drain(t.Context(), time.Now())
		require.NoError(t, err)
	}
	for coll, n := range c.makes {
		requireCount(t, n, a.db.Collection(coll), bson.D{{Key: "type", Value: bson.D{{Key: "$ne", Value: "other"}}}, {Key: "_id", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "^~"}}}}})
	}
	for coll, like := range c.leaves {
		requireCount(t, 1, a.db.Collection(coll), like)
	}
	return died
}

func requireCount(t *testing.T, want int64, coll *mongo.Collection, like bson.D) {
	t.Helper()
	got, err := coll.CountDocuments(t.Context(), like)
	require.NoError(t, err)
	require.Equal(t, want, got, "%s like %v", coll.Name(), like)
}
