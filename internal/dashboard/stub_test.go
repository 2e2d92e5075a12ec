package dashboard_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/mscheduler/mscheduler/internal/dashboard"
)

// stub is an API that says what a test wants at the moment, behind a dashboard that a browser shows.
type stub struct {
	url string // of the dashboard

	mu      sync.Mutex
	answers map[string]answer // by method and path
	sent    []string          // the requests that are none to read: method, path and body
}

type answer struct {
	status int
	text   string
}

// stubbed opens a browser and a dashboard below a mount, whose API knows who asks and that nothing happens.
func stubbed(t *testing.T, mount string) (*stub, *browser) {
	t.Helper()
	t.Parallel()
	b := open(t)
	s := &stub{answers: map[string]answer{}}
	s.says("GET /me", `{"name": "ann", "role": "admin"}`)
	s.says("GET /events", ": here\n\n")
	h := httptest.NewServer(dashboard.New(dashboard.Config{API: http.StripPrefix(mount+"/api/v1", s), Mount: mount}))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	s.url = h.URL + mount + "/ui"
	return s, b
}

// says sets the answer to a request such as GET /tasks.
func (s *stub) says(request, text string) { s.fails(request, http.StatusOK, text) }

// fails sets an answer with a status.
func (s *stub) fails(request string, status int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[request] = answer{status, text}
}

// changes are the requests so far that are none to read.
func (s *stub) changes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.sent...)
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	a, ok := s.answers[r.Method+" "+r.URL.EscapedPath()]
	if r.Method != http.MethodGet {
		s.sent = append(s.sent, fmt.Sprintf("%s %s %s", r.Method, r.URL.EscapedPath(), body))
	}
	s.mu.Unlock()
	if !ok {
		a = answer{http.StatusNotFound, `{"status": 404, "title": "Not found"}`}
	}
	if r.URL.Path == "/events" && a.status == http.StatusOK {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, a.text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.text)
}

// reads has the page read itself again, and waits until it has.
func (b *browser) reads() {
	b.t.Helper()
	b.run(chromedp.Evaluate(`(async () => { while (reading) await new Promise((done) => setTimeout(done, 10)); await refresh(); })()`, nil,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}
