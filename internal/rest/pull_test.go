package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestAWorkerFetchesPingsAndEndsTasks(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k%d", "args": {"n": %d}}`, i, i))
	}
	tasks := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "py-1", "types": ["mail"], "max": 10}`)["tasks"].([]any)
	require.Len(t, tasks, 4)
	handle := func(i int) string { return at(tasks, fmt.Sprint(i)+".handle").(string) }
	require.EqualValues(t, 0, at(tasks, "0.args.n"))
	require.EqualValues(t, 1, at(tasks, "0.attempt"))
	require.NotEmpty(t, at(tasks, "0.token"))
	require.EqualValues(t, 10_000, at(tasks, "0.ping_interval_ms"))

	pinged := w.ok("POST", "/api/v1/pull/ping", fmt.Sprintf(`{"handles": [%q, %q]}`, handle(0), handle(1)))["executions"].([]any)
	require.Len(t, pinged, 2)
	require.NotEmpty(t, at(pinged, "1.until"))

	done := fmt.Sprintf(`{"handle": %q, "result": {"sent": true}}`, handle(0))
	require.Equal(t, "Success", w.ok("POST", "/api/v1/pull/complete", done)["status"])
	require.Equal(t, "Success", w.ok("POST", "/api/v1/pull/complete", done)["status"], "a repetition answers the same")
	require.Equal(t, true, at(w.ok("GET", "/api/v1/tasks/-/mail/k0", ""), "result.sent"))
	failed := w.ok("POST", "/api/v1/pull/fail", fmt.Sprintf(`{"handle": %q, "reason": "no such address", "fatal": true}`, handle(1)))
	require.Equal(t, "Failure", failed["status"])
	require.Equal(t, "no such address", failed["error_info"])
	again := w.ok("POST", "/api/v1/pull/fail", fmt.Sprintf(`{"handle": %q, "reason": "busy", "retry_after": "1h"}`, handle(2)))
	require.Equal(t, "Error", again["status"])
	require.Equal(t, "New", w.ok("POST", "/api/v1/pull/give-back", fmt.Sprintf(`{"handle": %q}`, handle(3)))["status"])

	lost := w.ok("POST", "/api/v1/pull/ping", fmt.Sprintf(`{"handles": [%q]}`, handle(3)))["executions"]
	require.Equal(t, true, at(lost, "0.lost"))
	w.fails(http.StatusConflict, "POST", "/api/v1/pull/complete", fmt.Sprintf(`{"handle": %q}`, handle(3)))
}

// Seed 000: the agent that runs a periodic task can read the rule's ext.
func TestAWorkerSeesTheRunOfItsTask(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report", "ext": {"line": 7}}`)
	run := w.ok("POST", nightly+"/trigger", "")
	got := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["report"]}`)
	require.Equal(t, run["task_id"], at(got, "tasks.0.id"))
	require.Equal(t, "nightly", at(got, "tasks.0.rule"))
	require.Equal(t, at(w.ok("GET", runs, ""), "runs.0.nominal"), at(got, "tasks.0.nominal"))
	require.EqualValues(t, 1, at(got, "tasks.0.run_attempt"))
	require.EqualValues(t, 7, at(got, "tasks.0.ext.line"))
}

func TestBadRequestsOfAWorkerAreRefused(t *testing.T) {
	w := newWorld(t)
	for body, field := range map[string]string{
		`{"types": ["mail"]}`: "body.worker_id",
		`{"worker_id": "w"}`:  "body.types",
		`{"worker_id": "w", "types": ["mail"], "max": 1001}`:        "body.max",
		`{"worker_id": "w", "types": ["mail"], "wait": "51s"}`:      "body.wait",
		`{"worker_id": "w", "types": ["mail"], "lease": "1ms"}`:     "body.lease",
		`{"worker_id": "w", "types": ["mail"], "concurrency": 1}`:   "body.concurrency",
		`{"worker_id": "w", "types": ["mail"], "tenants": ["a b"]}`: "body.tenants[0]",
	} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/fetch", body), field, body)
	}
	for _, verb := range []string{"complete", "fail", "give-back"} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/"+verb, `{"handle": "x"}`), "body.handle", verb)
	}
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/ping", `{"handles": []}`), "body.handles")
}

// Of many that wait for the same, one asks the database; each task goes to one of them.
func TestWaitingFetchesShareAQuestionAndEachGetsATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const workers = 20
	got := make(chan answer, workers)
	for i := range workers {
		go func() {
			got <- w.do("POST", "/api/v1/pull/fetch", fmt.Sprintf(`{"worker_id": "w%d", "types": ["mail"], "wait": "50s"}`, i))
		}()
	}
	for i := range workers {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k%d"}`, i))
	}
	keys := map[any]bool{}
	for range workers {
		a := testdb.Receive(t, got)
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Len(t, a.body["tasks"], 1)
		keys[at(a.body, "tasks.0.key")] = true
	}
	require.Len(t, keys, workers)
}

// A task may be for one of many that wait in a line.
func TestATaskForOneOfManyThatWaitIsFound(t *testing.T) {
	w := newWorld(t)
	got := make(chan answer, 10)
	for i := range 10 {
		go func() {
			got <- w.do("POST", "/api/v1/pull/fetch", fmt.Sprintf(`{"worker_id": "w%d", "types": ["mail"], "wait": "50s"}`, i))
		}()
	}
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "options": {"specific_worker_ids": ["w7"]}}`)
	require.Equal(t, "k", at(testdb.Receive(t, got).body, "tasks.0.key"), "long before the wait of another is over")
	w.api.Stop()
	for range 9 {
		testdb.Receive(t, got)
	}
}

// What is fetched for a worker that closed its connection is due again at once.
func TestTasksOfAWorkerThatIsGoneAreGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/api/v1/pull/fetch", strings.NewReader(`{"worker_id": "gone", "types": ["mail"], "wait": "50s"}`))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close()
		}
	}()
	time.Sleep(50 * time.Millisecond) // it may wait by now; the test holds wherever it is
	leave()
	testdb.Receive(t, ended)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	require.Eventually(t, func() bool {
		tasks, _ := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "next", "types": ["mail"]}`)["tasks"].([]any)
		return len(tasks) == 1
	}, testdb.Patience, 10*time.Millisecond)
	n, err := w.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "lapse_count", Value: bson.D{{Key: "$gt", Value: 0}}}})
	require.NoError(t, err)
	require.Zero(t, n, "nobody waits for a lease to lapse")
}

func TestAPullingWorkerLearnsOfANewFilterAndPingIntervalByItsPings(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	fetch := func(worker string) []any {
		return w.ok("POST", "/api/v1/pull/fetch", fmt.Sprintf(`{"worker_id": %q, "types": ["mail"]}`, worker))["tasks"].([]any)
	}
	tasks := fetch("py-1")
	require.Len(t, tasks, 1)
	handles := fmt.Sprintf(`{"handles": [%q]}`, at(tasks, "0.handle"))
	ping := func() any { return at(w.ok("POST", "/api/v1/pull/ping", handles)["executions"], "0") }
	require.EqualValues(t, 10_000, at(ping(), "ping_interval_ms"))
	require.Nil(t, at(ping(), "cancel_requested"))

	w.as("If-Match", "*").ok("PATCH", "/api/v1/tasks/-/mail/k", `{"options": {"ping_interval": "4s", "specific_worker_ids": ["py-2"]}}`)
	require.EqualValues(t, 4_000, at(ping(), "ping_interval_ms"))
	require.Equal(t, true, at(ping(), "cancel_requested"))
	ended := w.ok("POST", "/api/v1/pull/fail", fmt.Sprintf(`{"handle": %q, "reason": "stopped"}`, at(tasks, "0.handle")))
	require.Equal(t, "New", ended["status"])
	require.Len(t, fetch("py-2"), 1)
}
