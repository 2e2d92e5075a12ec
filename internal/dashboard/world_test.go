package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/server"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// world is a database with a server, and a worker of four types: report succeeds, mail fails, crawl runs until the test
// ends, and review asks a person.
type world struct {
	t   *testing.T
	db  *mongo.Database
	url string // of the server
}

func newWorld(t *testing.T, change ...func(*server.Config)) *world {
	t.Helper()
	w := &world{t: t, db: testdb.New(t)}
	c := server.Config{Database: w.db, NoTokens: true, Version: "test"}
	for _, f := range change {
		f(&c)
	}
	s, err := server.New(c)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Stop()
		h.CloseClientConnections()
		h.Close()
		require.NoError(t, s.Close(context.Background()))
	})
	w.url = h.URL + c.Mount
	return w
}

// work runs the worker until the test ends.
func (w *world) work() {
	w.t.Helper()
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: "worker-1", Concurrency: 4, ShutdownTimeout: -1})
	require.NoError(w.t, err)
	handle := func(typ string, h func(context.Context, *consumer.Task[json.RawMessage]) (any, error), options ...consumer.HandleOption) {
		require.NoError(w.t, consumer.Handle(c, model.NewType[json.RawMessage, any](typ), h, options...))
	}
	handle("report", func(context.Context, *consumer.Task[json.RawMessage]) (any, error) {
		return map[string]any{"pages": 12, "url": "https://example.org/report.pdf"}, nil
	})
	handle("mail", func(context.Context, *consumer.Task[json.RawMessage]) (any, error) {
		return nil, errors.New("550 5.1.1 no such mailbox")
	})
	handle("crawl", func(ctx context.Context, _ *consumer.Task[json.RawMessage]) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	w.runs(c.Run)
}

// runs runs a worker or an engine until the test ends.
func (w *world) runs(run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		<-ended
	})
}

// call sends a request to the API, which must succeed.
func (w *world) call(method, path string, body any) map[string]any {
	w.t.Helper()
	status, out := w.do(method, "/api/v1"+path, body)
	require.Less(w.t, status, 300, "%s %s: %v", method, path, out)
	return out
}

func (w *world) do(method, path string, body any) (int, map[string]any) {
	w.t.Helper()
	text := ""
	if body != nil {
		encoded, err := json.Marshal(body)
		require.NoError(w.t, err)
		text = string(encoded)
	}
	return w.raw(method, path, text)
}

// raw is do with a body as text.
func (w *world) raw(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPut {
		r.Header.Set("If-Match", "*")
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	var out map[string]any
	_ = json.NewDecoder(res.Body).Decode(&out) // an answer without a document is nil
	return res.StatusCode, out
}

// await reads a document of the API until it is as wanted.
func (w *world) await(path string, wanted func(map[string]any) bool) map[string]any {
	w.t.Helper()
	var doc map[string]any
	testdb.Eventually(w.t, path+" is as wanted", func() bool {
		doc = w.call(http.MethodGet, path, nil)
		return wanted(doc)
	})
	return doc
}

func hasStatus(status string) func(map[string]any) bool {
	return func(doc map[string]any) bool { return doc["status"] == status }
}

// page gets a page and returns its status and text.
func (w *world) page(path string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+"/ui"+path, nil)
	require.NoError(w.t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return res.StatusCode, string(text)
}

// at is a value within a document: names of fields, and places in lists.
func at(doc any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := doc.(map[string]any)
			doc = fields[step]
		case int:
			values, _ := doc.([]any)
			if step >= len(values) {
				return nil
			}
			doc = values[step]
		}
	}
	return doc
}
