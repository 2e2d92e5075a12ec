package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/dropdb"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// Shared is a deployment that the tests of a process share. It starts when the first
// test asks for it.
type Shared struct {
	// Engines are tried in their order; the first that is at hand is taken.
	Engines []Engine
	// Announce gets one line: what is used, and why nothing better. Before it, another one says which
	// deployment is waited for. nil prints them to standard error.
	Announce io.Writer

	mu         sync.Mutex
	deployment *Deployment
	client     *mongo.Client
	err        error
	tried      bool
}

// Deployment is the shared one, started if need be.
func (s *Shared) Deployment(t testing.TB) *Deployment {
	t.Helper()
	d, _ := s.start(t)
	return d
}

// DB is a fresh database, dropped after the test. All of a process share one client.
func (s *Shared) DB(t testing.TB) *mongo.Database {
	t.Helper()
	_, client := s.start(t)
	return Fresh(t, client)
}

// patience is how long a test waits for what only a broken server never does. The drop of a database waits for what
// tests beside it have asked of the server, which on a busy machine is a minute and more.
const patience = 2 * time.Minute

// Fresh is a database with a name of its own, dropped after the test.
func Fresh(t testing.TB, client *mongo.Client) *mongo.Database {
	t.Helper()
	db := client.Database("test_" + rand.Text()[:16])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own has ended
		defer cancel()
		if err := dropdb.Drop(ctx, db); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return db
}

// Connect is a client that is disconnected after the test.
func Connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client, err := Client(uri)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Errorf("disconnecting: %v", err)
		}
	})
	return client
}

// Options are those of a client of a deployment, be it in a bubble or not.
func Options(uri string) *options.ClientOptions {
	return options.Client().ApplyURI(uri).SetDialer(&proxy.Dialer{})
}

// Client is a client with the time limits of tests. The caller disconnects it.
func Client(uri string) (*mongo.Client, error) {
	client, err := mongo.Connect(Options(uri).SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", uri, err)
	}
	return client, nil
}

// start returns the deployment and its client. A failure is remembered: the tests that
// follow fail at once, with the same words.
func (s *Shared) start(t testing.TB) (*Deployment, *mongo.Client) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		s.deployment, s.err = s.choose(context.Background()) // it outlives the test that is the first to ask
		if s.err == nil {
			s.client, s.err = Client(s.deployment.URI)
		}
	}
	if s.err != nil {
		t.Fatalf("a database to test on: %v", s.err)
	}
	return s.deployment, s.client
}

// choose starts the engine that the environment asks for, which must work. Otherwise it starts the first that is at
// hand. One that is there and does not start is passed over as well, and named.
func (s *Shared) choose(ctx context.Context) (*Deployment, error) {
	engines := s.Engines
	if i := slices.IndexFunc(engines, Engine.asked); i >= 0 {
		engines = engines[i : i+1]
	}
	var passed []string
	for _, e := range engines {
		if hosts := options.Client().ApplyURI(os.Getenv(URIVariable)).Hosts; e.Name == "uri" && len(hosts) > 0 { // for a minute at most
			s.say("waiting for " + strings.Join(hosts, ",") + ", which " + URIVariable + " names")
		}
		d, err := e.Start(ctx)
		if err == nil {
			s.announce(d.Engine, passed)
			return d, nil
		}
		if e.asked() {
			return nil, err
		}
		passed = append(passed, Reason(e.Name, err))
	}
	return nil, errors.New("no engine is at hand: " + strings.Join(passed, "; "))
}

// Reason is one line that says why an engine is not used.
func Reason(engine string, err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if strings.HasPrefix(text, engine+":") {
		return text
	}
	return engine + ": " + text
}

func (s *Shared) announce(engine string, passed []string) {
	line := "testing on " + engine
	if len(passed) > 0 {
		line += " (" + strings.Join(passed, "; ") + ")"
	}
	s.say(line)
}

func (s *Shared) say(line string) {
	to := s.Announce
	if to == nil {
		to = os.Stderr
	}
	_, _ = fmt.Fprintln(to, line) // nobody to tell
}

// Close ends what was started. A later test would start it again.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Disconnect(context.Background()))
	}
	if s.deployment != nil {
		errs = append(errs, s.deployment.Close())
	}
	s.client, s.deployment, s.err, s.tried = nil, nil, nil, false
	return errors.Join(errs...)
}
