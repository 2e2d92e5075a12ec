package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

// told is one Server-Sent Event.
type told struct {
	id, name string
	data     map[string]any
}

// watching is a client of the events.
type watching struct {
	w     *world
	lines *bufio.Scanner
	stop  context.CancelFunc
}

// watch begins to watch. after "" is from now on.
func (w *world) watch(query, after string) *watching {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	w.t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/v1/events"+query, nil)
	require.NoError(w.t, err)
	r.Header = w.header.Clone()
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(w.t, http.StatusOK, res.StatusCode)
	require.Equal(w.t, "text/event-stream", res.Header.Get("Content-Type"))
	return &watching{w, bufio.NewScanner(res.Body), stop}
}

// next is the next event; its name is "" when the stream has ended.
func (x *watching) next() (e told) {
	x.w.t.Helper()
	late := time.AfterFunc(testdb.Patience, func() {
		x.w.t.Errorf("no event has come within %v", testdb.Patience)
		x.stop()
	})
	defer late.Stop()
	for x.lines.Scan() {
		name, value, _ := strings.Cut(x.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			require.NoError(x.w.t, json.Unmarshal([]byte(value), &e.data))
		case "":
			if e.name != "" {
				return e
			}
		}
	}
	return told{}
}

func TestEventsAreToldInOrderAndAClientGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all, mine := w.watch("", ""), w.watch("?type=mail&tenant=acme&kind=sent,ended", "")
	for _, body := range []string{`{"type": "sms", "key": "a"}`, `{"type": "mail", "key": "b"}`, `{"type": "mail", "key": "c", "tenant": "acme"}`} {
		w.ok("POST", "/api/v1/tasks", body)
	}
	var first told
	for i, key := range []string{"a", "b", "c"} {
		e := all.next()
		require.Equal(t, "sent", e.name)
		require.Equal(t, key, e.data["key"])
		require.NotContains(t, e.data, "token")
		if i == 0 {
			first = e
		}
	}
	require.Equal(t, "acme/mail/c", mine.next().data["task_id"])
	w.ok("POST", "/api/v1/tasks/acme/mail/c/cancel", "")
	require.Equal(t, "ended", mine.next().name)

	again := w.watch("", first.id) // while others watch: from what the process remembers
	require.Equal(t, "b", again.next().data["key"])
	for _, x := range []*watching{all, mine, again} {
		x.stop()
	}
	later := w.watch("", first.id) // after all have gone
	require.Equal(t, "b", later.next().data["key"])
	require.Equal(t, "c", later.next().data["key"])
}

func TestAClientWhoseEventsAreNotKnownIsTold(t *testing.T) {
	w := newWorld(t)
	x := w.watch("", "82000000010000000000000000")
	require.Equal(t, "missed", x.next().name)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "a"}`)
	require.Equal(t, "a", x.next().data["key"], "and hears what happens from now on")
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/events?kind=odd", "")
}

// A client that was cut off before its first event comes back with the place where it began.
func TestAClientComesBackToWhereItBegan(t *testing.T) {
	w := newWorld(t)
	x := w.watch("", "")
	require.True(t, x.lines.Scan())
	began, ok := strings.CutPrefix(x.lines.Text(), "id: ")
	require.True(t, ok)
	x.stop()
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "a"}`)
	require.Equal(t, "a", w.watch("", began).next().data["key"])
}
