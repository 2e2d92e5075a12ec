// Package testdb gives the tests of this repository a database each: on the embedded
// server, one per test process, or on the deployment that MSCHEDULER_MONGODB_URI
// names. Package mstest is what users get.
package testdb

import (
	"context"
	"crypto/rand"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/embedded"
)

// URIVariable names a deployment to run the tests on instead of the embedded server.
const URIVariable = "MSCHEDULER_MONGODB_URI"

var process struct {
	sync.Mutex
	uri    string
	server *embedded.Server // nil when the deployment is somebody else's
	client *mongo.Client
}

// URI is the connection string of the deployment, which it starts on first use.
func URI(t testing.TB) string {
	t.Helper()
	process.Lock()
	defer process.Unlock()
	if process.uri != "" {
		return process.uri
	}
	if process.uri = os.Getenv(URIVariable); process.uri != "" {
		return process.uri
	}
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatalf("starting the embedded server: %v", err)
	}
	process.server, process.uri = server, server.URI()
	return process.uri
}

// New is a fresh database, dropped after the test. All of a process share one client.
func New(t testing.TB) *mongo.Database {
	t.Helper()
	db := client(t).Database("test_" + rand.Text()[:16])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own has ended
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return db
}

func client(t testing.TB) *mongo.Client {
	t.Helper()
	uri := URI(t)
	process.Lock()
	defer process.Unlock()
	if process.client == nil {
		c, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(10 * time.Second))
		if err != nil {
			t.Fatalf("connecting to %s: %v", uri, err)
		}
		process.client = c
	}
	return process.client
}

// Main runs a package's tests, stops what this package started and fails when any
// goroutine is left: func TestMain(m *testing.M) { testdb.Main(m) }.
func Main(m *testing.M) { goleak.VerifyTestMain(run{m}) }

type run struct{ m *testing.M }

func (r run) Run() int {
	code := r.m.Run()
	process.Lock()
	defer process.Unlock()
	if process.client != nil {
		_ = process.client.Disconnect(context.Background()) // goleak tells what it left
	}
	if process.server != nil {
		_ = process.server.Close() // as above
	}
	return code
}
