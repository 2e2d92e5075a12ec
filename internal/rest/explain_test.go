package rest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
)

func TestATaskIsExplained(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "held": true}`)
	e := w.ok("GET", "/api/v1/tasks/-/mail/k/explain", "")
	require.Equal(t, "-/mail/k", e["id"])
	require.Equal(t, "Wait", e["status"])
	require.Contains(t, e["summary"], "It is held")
	require.Contains(t, at(e, "next.0"), "task release")
}

func TestAnExplanationTellsATenantNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all := w.with(access.Admin)
	all.as("If-None-Match", "*").ok("PUT", "/api/v1/types/mail", `{"max_running": 1}`)
	for _, body := range []string{`{"type": "mail", "key": "secret", "tenant": "other"}`, `{"type": "mail", "key": "k", "tenant": "mine"}`} {
		all.ok("POST", "/api/v1/tasks", body)
	}
	all.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["mail"], "tenants": ["other"]}`)
	const path = "/api/v1/tasks/mine/mail/k/explain"
	mine := w.with(access.Viewer, "mine").do("GET", path, "")
	require.NotContains(t, mine.text, "secret")
	require.Contains(t, all.do("GET", path, "").text, "No live worker of its type (1) takes such a task")
	require.Contains(t, mine.text, "No live worker of its type (1) takes such a task")
}

func TestAWorkerThatPullsIsListedAndServesWhatItFetches(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "py-1", "types": ["mail"], "tenants": ["acme"]}`)
	w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "py-2", "categories": ["figures"]}`)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "tenant": "acme"}`)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	w.ok("POST", "/api/v1/tasks", `{"type": "report", "key": "k", "category": "figures"}`)
	w.ok("POST", "/api/v1/tasks", `{"type": "report", "key": "plain"}`)
	text := func(task string) string { return w.do("GET", "/api/v1/tasks/"+task+"/explain", "").text }
	require.Contains(t, text("acme/mail/k"), "within seconds by the worker py-1.")
	require.Contains(t, text("-/mail/k"), "takes such a task")
	require.Contains(t, text("-/report/k"), "within seconds by the worker py-2.")
	require.Contains(t, text("-/report/plain"), "takes such a task")
	workers := w.ok("GET", "/api/v1/workers", "")["workers"]
	require.Equal(t, "py-1", at(workers, "0.id"))
	require.Equal(t, true, at(workers, "0.alive"))
	require.Equal(t, "pulling", at(workers, "0.stream"))
	require.Empty(t, at(workers, "1.types"))
	require.Equal(t, "figures", at(workers, "1.only.categories.0"))
}
