package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// session runs commands as a user would, on a database of its own.
type session struct {
	t        *testing.T
	uri      string
	database string
	dir      string
	stdin    string
	terminal bool
	secret   string      // MSCHEDULER_SECRET_KEY
	env      Environment // beside these
	environ  []string    // of the process, beside its usual one
	hangups  func() (<-chan os.Signal, func())
}

// result is what a command left.
type result struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

func newSession(t *testing.T) *session {
	t.Helper()
	s := &session{t: t, uri: testdb.URI(t), database: "cli_" + strings.ToLower(rand.Text()[:12]), dir: t.TempDir()}
	uri := s.uri // a test may take it away from the session
	t.Cleanup(func() {
		client, err := mongo.Connect(options.Client().ApplyURI(uri))
		require.NoError(t, err)
		ctx := context.Background() // the test's own has ended
		require.NoError(t, client.Database(s.database).Drop(ctx))
		require.NoError(t, client.Disconnect(ctx))
	})
	return s
}

// lockedBuffer is what a command that runs on writes to while the test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (s *session) process(args []string, out, errs *lockedBuffer) Process {
	env := s.env
	env.URI, env.Database, env.SecretKey = s.uri, s.database, s.secret
	return Process{
		Hangups: s.hangups,
		Args:    args, Stdin: strings.NewReader(s.stdin), Stdout: out, Stderr: errs, StdinTerminal: s.terminal,
		Env: env, Dir: s.dir,
		Environ: append([]string{"PATH=/usr/bin:/bin", "MSCHEDULER_MONGODB_URI=secret"}, s.environ...),
	}
}

// run runs a command to its end.
func (s *session) run(args ...string) result {
	s.t.Helper()
	var out, errs lockedBuffer
	ctx, cancel := context.WithTimeout(s.t.Context(), testdb.Patience)
	defer cancel()
	code := Run(ctx, s.process(args, &out, &errs))
	require.NoError(s.t, ctx.Err(), "%v did not end", args)
	return result{s.t, code, out.String(), errs.String()}
}

// ok runs a command that must succeed.
func (s *session) ok(args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	require.Equal(s.t, ExitOK, r.code, "%v\nstdout: %s\nstderr: %s", args, r.stdout, r.stderr)
	return r
}

// fails runs a command that must end with the code and say all of the texts.
func (s *session) fails(code int, texts []string, args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	require.Equal(s.t, code, r.code, "%v\nstdout: %s\nstderr: %s", args, r.stdout, r.stderr)
	for _, text := range texts {
		require.Contains(s.t, r.stderr, text, "%v", args)
	}
	return r
}

// json decodes stdout, which must be one JSON value.
func (r result) json(into any) {
	r.t.Helper()
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	require.NoError(r.t, dec.Decode(into), r.stdout)
	require.False(r.t, dec.More(), "more than one JSON value: %s", r.stdout)
}

// start runs a command until the returned function is called, which gives its result.
func (s *session) start(args ...string) (out, errs *lockedBuffer, stop func() result) {
	s.t.Helper()
	out, errs = &lockedBuffer{}, &lockedBuffer{}
	ctx, cancel := context.WithCancel(s.t.Context())
	code := make(chan int, 1)
	p := s.process(args, out, errs)
	go func() { code <- Run(ctx, p) }()
	var once sync.Once
	var r result
	stop = func() result {
		once.Do(func() {
			cancel()
			select {
			case c := <-code:
				r = result{s.t, c, out.String(), errs.String()}
			case <-time.After(testdb.Patience):
				s.t.Errorf("%v did not stop", args)
			}
		})
		return r
	}
	s.t.Cleanup(func() { stop() })
	return out, errs, stop
}

// worker starts `work` and waits until it lives.
func (s *session) worker(args ...string) (out, errs *lockedBuffer, stop func() result) {
	s.t.Helper()
	out, errs, stop = s.start(append([]string{"work", "--worker-id", "w1", "--allow-exec"}, args...)...)
	s.eventually("a worker", func() bool {
		r := s.run("worker", "list", "-o", "json")
		return r.code == ExitOK && strings.Contains(r.stdout, `"id":"w1"`)
	})
	return out, errs, stop
}

func (s *session) eventually(what string, met func() bool) {
	s.t.Helper()
	testdb.Eventually(s.t, what, met)
}
