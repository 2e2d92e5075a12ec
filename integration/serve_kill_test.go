package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/proxy"
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

// creation is a request that creates things, and how many documents it must leave in which collections.
type creation struct {
	path, body string
	makes      map[string]int64
}

var creations = map[string]creation{
	"a task": {"/tasks", `{"type": "mail", "args": {"n": 1}}`, map[string]int64{"tasks": 1}},
	"tasks":  {"/tasks/batch", `{"tasks": [{"type": "mail"}, {"type": "mail", "in": "1h"}, {"type": "sms"}]}`, map[string]int64{"tasks": 3}},
	"a flow": {"/flows", `{"nodes": [{"id": "a", "type": "mail"}, {"id": "b", "type": "mail", "after": ["a"]}]}`, map[string]int64{"flows": 1}},
	"a plan": {"/plans", `{"station": "report", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`, map[string]int64{"plans": 1}},
	"nodes":  {"/streams/orders/1/nodes", `{"nodes": [{"type": "mail"}, {"type": "mail"}]}`, map[string]int64{"flow_nodes": 2}},
}

// A server dies before or after each write of a request. A client that repeats the request, with its
// Idempotency-Key, has created everything once, and gets the same answer from then on.
func TestWhatAServerThatDiesWasAskedToCreateIsCreatedOnceByARepetition(t *testing.T) {
	t.Parallel()
	for what, c := range creations {
		for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
			t.Run(what+" "+when, func(t *testing.T) {
				onEngines(t, inDepth(func(t *testing.T, e Engine) {
					died := 0
					for _, command := range []string{"insert", "update"} {
						for skip := 0; dies(t, e, c, proxy.Rule{Command: command, Do: action, Skip: skip}); skip++ {
							died++
						}
					}
					require.Positive(t, died)
					t.Logf("died in %d writes", died)
				}))
			})
		}
	}
}

// dies has a server die in a write, and reports whether it came to that.
func dies(t *testing.T, e Engine, c creation, in proxy.Rule) bool {
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
	_, err := post(t.Context(), url, creation{path: "/tasks", body: `{"type": "other"}`}, "warm") // from here on it writes what it is asked for
	require.NoError(t, err)
	trap := px.Set(in)
	answered, told := make(chan error, 1), ""
	go func() {
		var err error
		told, err = post(t.Context(), url, c, "request-1")
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
	first, err := post(t.Context(), other.URL, c, "request-1")
	require.NoError(t, err)
	again, err := post(t.Context(), other.URL, c, "request-1")
	require.NoError(t, err)
	require.Equal(t, first, again)
	if told != "" {
		require.Equal(t, told, first, "the answer of the server that died")
	}
	for coll, n := range c.makes {
		got, err := a.db.Collection(coll).CountDocuments(t.Context(), bson.D{{Key: "type", Value: bson.D{{Key: "$ne", Value: "other"}}}, {Key: "_id", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "^~"}}}}})
		require.NoError(t, err)
		require.Equal(t, n, got, coll)
	}
	return died
}

// post sends a request with that key, and returns the answer of one that succeeded.
func post(ctx context.Context, url string, c creation, key string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1"+c.path, strings.NewReader(c.body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return fmt.Sprint(res.StatusCode, " ", string(bytes.TrimSpace(text))), err
}
