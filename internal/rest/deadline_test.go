package rest_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// expiring is a listener on whose connections every read deadline expires at once. What arrived together with the
// header of a request needs no further read.
type expiring struct{ net.Listener }

func (l expiring) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return expiringConn{conn}, err
}

type expiringConn struct{ net.Conn }

func (c expiringConn) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		at = time.Unix(1, 0)
	}
	return c.Conn.SetReadDeadline(at)
}

// connection is one connection to a server.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

// connect connects to a server of the world on which deadlines expire at once.
func (w *world) connect() *connection {
	s := httptest.NewUnstartedServer(w.api)
	s.Listener = expiring{s.Listener}
	s.Start()
	w.t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return &connection{conn, bufio.NewReader(conn)}
}

// send sends a request in one piece: its first line, headers, and after an empty line the body.
func (c *connection) send(t *testing.T, lines ...string) {
	first, rest := lines[0]+" HTTP/1.1", lines[1:]
	_, err := io.WriteString(c, strings.Join(append([]string{first, "Host: localhost"}, rest...), "\r\n"))
	require.NoError(t, err)
}

// status is that of the next answer.
func (c *connection) status() (int, string) {
	res, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

func TestAConnectionOutlivesASlowChange(t *testing.T) {
	t.Parallel()
	for name, request := range map[string][]string{
		"an optional body that is absent":         {"POST /api/v1/tasks/-/mail/one/cancel", "", ""},
		"a repeatable request":                    {"POST /api/v1/tasks", "Idempotency-Key: one", "Content-Length: 16", "", `{"type": "mail"}`},
		"a repeatable request in chunks":          {"POST /api/v1/tasks", "Idempotency-Key: one", "Transfer-Encoding: chunked", "", "10", `{"type": "mail"}`, "0", "", ""},
		"a repeatable one without a body":         {"POST /api/v1/periodics/-/nightly/trigger", "Idempotency-Key: one", "", ""},
		"an optional body that is sent":           {"POST /api/v1/tasks/-/mail/one/cancel", "Content-Length: 2", "", "{}"},
		"an operation whose body is never absent": {"POST /api/v1/tasks", "Content-Length: 16", "", `{"type": "mail"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			px := testdb.BehindPatient(t)
			w := newWorld(t, func(c *rest.Config) { c.Database = testdb.Through(t, px) })
			w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "one"}`)
			w.ok("POST", "/api/v1/periodics", `{"name": "nightly", "cron": "@daily", "type": "mail", "enabled": true}`)
			c := w.connect()
			collection := "tasks"
			if strings.Contains(request[0], "periodics") {
				collection = "periodic_rules"
			}
			trap := px.Set(proxy.Rule{Collection: collection, Do: proxy.HoldBefore})
			defer trap.Release()
			c.send(t, request...)
			answered := make(chan struct{})
			var status int
			var text string
			go func() {
				defer close(answered)
				status, text = c.status()
			}()
			select {
			case <-trap.Hit():
			case <-answered: // before the database has seen the change
			}
			trap.Release()
			testdb.Receive(t, answered)
			require.Contains(t, []int{http.StatusOK, http.StatusCreated}, status, text)

			c.send(t, "GET /api/v1/tasks/-/mail/one", "", "")
			status, text = c.status()
			require.Equal(t, http.StatusOK, status, text)
		})
	}
}

func TestABodyThatDoesNotArriveInTimeIsCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, header := range map[string]string{"once": "Idempotency-Key: one", "as often as it is sent": "Accept: */*"} {
		c := w.connect()
		c.send(t, "POST /api/v1/tasks", header, "Content-Length: 17", "", `{"type": "mail"}`)
		status, text := c.status()
		require.Equal(t, http.StatusRequestTimeout, status, "%s: %s", name, text)
	}
}
