// Package testdb gives the tests of this repository a database each: on the embedded
// server, one per test process, or on the deployment that MSCHEDULER_MONGODB_URI
// names. Package mstest is what users get; package integration runs on every engine.
package testdb

import (
	"context"
	"io"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// Patience is how long a test waits for what must come. Only a broken product exceeds it, however busy the
// machine is.
const Patience = 2 * time.Minute

var process = engine.Shared{
	Engines:  []engine.Engine{engine.URI(), engine.Embedded(embedded.Options{})},
	Announce: io.Discard, // it is always one of these two
}

// URI is the connection string of the deployment, which it starts on first use.
func URI(t testing.TB) string {
	t.Helper()
	return process.Deployment(t).URI
}

// New is a fresh database, dropped after the test. All of a process share one client.
func New(t testing.TB) *mongo.Database {
	t.Helper()
	return process.DB(t)
}

// Behind starts a proxy before the deployment of [URI]. It ends with the test;
// disconnect its clients before.
func Behind(t testing.TB) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Start(URI(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// BehindPatient is [Behind] with a proxy that is patient: no command runs out of its time.
func BehindPatient(t testing.TB) *proxy.Proxy {
	t.Helper()
	p := Behind(t)
	p.Patient()
	return p
}

// Through is [New] behind the proxy.
func Through(t testing.TB, p *proxy.Proxy) *mongo.Database {
	t.Helper()
	return engine.Connect(t, p.URI()).Database(New(t).Name())
}

// Patient is [New] behind the proxy of [BehindPatient].
func Patient(t testing.TB) *mongo.Database {
	t.Helper()
	return Through(t, BehindPatient(t))
}

// Watched is [New] by a client of its own, which tells the monitor of its commands.
func Watched(t testing.TB, m *event.CommandMonitor) *mongo.Database {
	t.Helper()
	name := New(t).Name()
	client, err := mongo.Connect(options.Client().ApplyURI(URI(t)).SetMonitor(m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database(name)
}

// Reached waits until the client has reached its deployment. A client connects with its first command, which
// fails where connecting takes longer than the client's server selection.
func Reached(t testing.TB, client *mongo.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		err := client.Ping(ctx, nil)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("waiting for the deployment: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// Closes calls a Close that must succeed when the test is over, and gives it [Patience].
func Closes(t testing.TB, shut func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := shut(ctx); err != nil {
			t.Fatalf("closing at the end of the test: %v", err)
		}
	})
}

// Main runs a package's tests, stops what this package started and fails when any
// goroutine is left: func TestMain(m *testing.M) { testdb.Main(m) }.
func Main(m *testing.M) { goleak.VerifyTestMain(run{m}) }

type run struct{ m *testing.M }

func (r run) Run() int {
	code := r.m.Run()
	examples.cleanUp()
	_ = process.Close() // goleak tells what it left
	Settle()
	return code
}

// Settle gives goroutines that end [Patience] for it. goleak itself waits for half a second.
func Settle(but ...goleak.Option) {
	for began := time.Now(); goleak.Find(but...) != nil && time.Since(began) < Patience; {
		time.Sleep(10 * time.Millisecond)
	}
}
