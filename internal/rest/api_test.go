package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// world is a database with a server of its API, and the requests of a test.
type world struct {
	t      *testing.T
	db     *mongo.Database
	api    *rest.API
	url    string
	token  string      // of the requests; "" = none
	header http.Header // of the requests, beside the token
}

// newWorld serves a new database. change changes the configuration.
func newWorld(t *testing.T, change ...func(*rest.Config)) *world {
	w := &world{t: t, db: testdb.New(t), header: http.Header{}}
	c := rest.Config{Database: w.db, NoTokens: true, Version: "test"}
	for _, f := range change {
		f(&c)
	}
	var err error
	w.api, err = rest.New(c)
	require.NoError(t, err)
	w.api.Patient(testdb.Patience) // the machine may be busy
	s := httptest.NewServer(describedOnly(t, w.api))
	t.Cleanup(func() {
		w.api.Stop()
		s.Close()
		require.NoError(t, w.api.Close(context.Background()))
	})
	w.url = s.URL + c.Mount
	return w
}

// as is the world with other headers: names and values by turns.
func (w *world) as(pairs ...string) *world {
	out := *w
	out.header = w.header.Clone()
	for i := 0; i < len(pairs); i += 2 {
		out.header.Set(pairs[i], pairs[i+1])
	}
	return &out
}

// ready waits until the server is ready. It sets up an empty database first, which may take longer than one question.
func (w *world) ready() {
	testdb.Eventually(w.t, "the server is ready", func() bool { return w.do("GET", "/readyz", "").status == http.StatusOK })
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any // nil = no JSON object
}

// do sends a request; body "" sends none.
func (w *world) do(method, path, body string) answer {
	w.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, content)
	require.NoError(w.t, err)
	r.Header = w.header.Clone()
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	out := answer{status: res.StatusCode, header: res.Header, text: string(text)}
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&out.body)
	return out
}

// ok is do for a request that must succeed.
func (w *world) ok(method, path, body string) map[string]any {
	w.t.Helper()
	a := w.do(method, path, body)
	require.Contains(w.t, []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent}, a.status, a.text)
	return a.body
}

// fails is do for a request that must fail so. It returns the locations and messages of the errors.
func (w *world) fails(status int, method, path, body string) map[string]string {
	w.t.Helper()
	a := w.do(method, path, body)
	require.Equal(w.t, status, a.status, a.text)
	require.Equal(w.t, "application/problem+json", a.header.Get("Content-Type"), "RFC 9457")
	require.EqualValues(w.t, status, a.body["status"])
	out := map[string]string{"": a.body["detail"].(string)}
	errs, _ := a.body["errors"].([]any)
	for _, e := range errs {
		one := e.(map[string]any)
		out[one["location"].(string)] = one["message"].(string)
	}
	return out
}

// at is the value at a path of names and places: tasks.0.id.
func at(body any, path string) any {
	for _, name := range strings.Split(path, ".") {
		switch v := body.(type) {
		case map[string]any:
			body = v[name]
		case []any:
			body = v[int(name[0]-'0')]
		default:
			return nil
		}
	}
	return body
}

func TestAServerThatDrainsIsNotReadyAndAnswersRequests(t *testing.T) {
	w := newWorld(t)
	w.ready()
	w.api.Drain()
	a := w.do("GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "the process is stopping\n", a.text)
	require.Equal(t, http.StatusOK, w.do("GET", "/livez", "").status)
	require.Equal(t, http.StatusCreated, w.do("POST", "/api/v1/tasks", `{"type": "mail"}`).status)
}
