package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// The page of a task shows how its callback is delivered, with each attempt.
func TestATaskShowsTheAttemptsOfItsCallback(t *testing.T) {
	w := newWorld(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the till is closed", http.StatusServiceUnavailable)
	}))
	t.Cleanup(receiver.Close)
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: "messenger", ShutdownTimeout: -1, Callbacks: &consumer.CallbackConfig{}})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, model.NewType[json.RawMessage, any]("sell"), func(context.Context, *consumer.Task[json.RawMessage]) (any, error) { return "sold", nil }))
	w.runs(c.Run)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "sell", "key": "a/b", "options": map[string]any{"callback": map[string]any{"success": map[string]any{"url": receiver.URL}}}})
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "sell", "key": "quiet"})
	w.await("/tasks/-/sell/quiet", hasStatus("Success"))
	w.await("/tasks/-/sell/a%2Fb", hasStatus("Completed"))
	var page string
	testdb.Eventually(t, "the page has the answer of the receiver", func() bool {
		_, page = w.page("/tasks/-/sell/a%2Fb")
		return strings.Contains(page, "the till is closed")
	})
	require.Contains(t, page, `<section id="delivery">`)
	require.Contains(t, page, `href="/ui/tasks/-/mscheduler.callback/`)
	require.Contains(t, page, "messenger", "the worker of the attempt")
	_, page = w.page("/tasks/-/sell/quiet")
	require.NotContains(t, page, `id="delivery"`)
}
