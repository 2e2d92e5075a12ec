package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fetch fetches that many tasks of a type, and gives their handles.
func (w *world) fetch(typ string, n int) (handles []string) {
	w.t.Helper()
	tasks := w.ok("POST", "/api/v1/pull/fetch", fmt.Sprintf(`{"worker_id": "w", "types": [%q], "max": %d}`, typ, n))["tasks"].([]any)
	require.Len(w.t, tasks, n)
	for _, t := range tasks {
		handles = append(handles, at(t, "handle").(string))
	}
	return handles
}

func (w *world) sends(typ string, n int) {
	w.t.Helper()
	for i := range n {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": %q, "key": "%d"}`, typ, i))
	}
}

func TestManyExecutionsEndInOneRequestWithAnAnswerForEach(t *testing.T) {
	w := newWorld(t)
	w.sends("mail", 5)
	h := w.fetch("mail", 5)
	w.ok("POST", "/api/v1/pull/complete", fmt.Sprintf(`{"handle": %q, "result": 1}`, h[4]))
	got := w.ok("POST", "/api/v1/pull/ends", fmt.Sprintf(`{"complete": [{"handle": %q, "result": {"n": 1}}, {"handle": %q, "result": 2}],
		"fail": [{"handle": %q, "reason": "no", "fatal": true}, {"handle": %q, "fatal": true, "retry_after": "1m"}], "give_back": [{"handle": %q, "after": "1h"}]}`, h[0], h[4], h[1], h[2], h[3]))
	require.Equal(t, "Success", at(got, "complete.0.status"))
	require.Equal(t, true, at(got, "complete.1.lost"), "it had ended with another result")
	require.Equal(t, "Failure", at(got, "fail.0.status"))
	require.Contains(t, at(got, "fail.1.error"), "retry_after")
	require.Equal(t, h[3], at(got, "give_back.0.handle"))
	id := at(got, "give_back.0.id").(string)
	back := w.ok("GET", "/api/v1/tasks/"+id, "")
	due, err := time.Parse(time.RFC3339, back["due_at"].(string))
	require.NoError(t, err)
	require.Greater(t, time.Until(due), 50*time.Minute)
	require.Zero(t, back["error_count"])
	w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/ends", `{}`)
	errs := w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/ends", fmt.Sprintf(`{"complete": [{"handle": %q}, {"handle": "x"}]}`, h[2]))
	require.Contains(t, errs, "body.complete[1].handle")
}

func TestAWorkerReportsAPlanError(t *testing.T) {
	w := newWorld(t)
	w.sends("mail", 2)
	h := w.fetch("mail", 2)
	one := w.ok("POST", "/api/v1/pull/fail", fmt.Sprintf(`{"handle": %q, "reason": "no such region", "plan_error": true}`, h[0]))
	require.Equal(t, "Failure", at(one, "status"))
	require.Equal(t, "plan_error", at(one, "worker_states.0.fail_kind"))
	many := w.ok("POST", "/api/v1/pull/ends", fmt.Sprintf(`{"fail": [{"handle": %q, "reason": "no such region", "plan_error": true}]}`, h[1]))
	require.Equal(t, "Failure", at(many, "fail.0.status"))
	task := w.ok("GET", "/api/v1/tasks/"+at(many, "fail.0.id").(string), "")
	require.Equal(t, "plan_error", at(task, "worker_states.0.fail_kind"))
}

func TestProgressIsSeenAndACheckpointComesWithTheNextFetch(t *testing.T) {
	w := newWorld(t)
	w.sends("mail", 1)
	h := w.fetch("mail", 1)[0]
	w.ok("POST", "/api/v1/pull/progress", fmt.Sprintf(`{"handle": %q, "percent": 40, "message": "2 of 5", "checkpoint": {"page": 2}}`, h))
	task := w.ok("GET", "/api/v1/tasks/-/mail/0", "")
	require.EqualValues(t, 40, at(task, "progress.percent"))
	require.Equal(t, "2 of 5", at(task, "progress.message"))
	for body, location := range map[string]string{`"percent": 101`: "body.percent", `"for": 1`: "body.for", ``: "body.percent"} {
		text := fmt.Sprintf(`{"handle": %q`, h)
		if body != "" {
			text += ", " + body
		}
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/progress", text+"}"), location)
	}
	for report, location := range map[string]string{`"percent": 150`: "body.percent", `"message": "` + strings.Repeat("x", 4<<10+1) + `"`: "body.message"} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/progress", fmt.Sprintf(`{"handle": %q, "checkpoint": {"page": 3}, %s}`, h, report)), location)
	}
	w.ok("POST", "/api/v1/pull/give-back", fmt.Sprintf(`{"handle": %q}`, h))
	again := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w2", "types": ["mail"]}`)
	require.EqualValues(t, 2, at(again, "tasks.0.checkpoint.page"))
	w.fails(http.StatusConflict, "POST", "/api/v1/pull/progress", fmt.Sprintf(`{"handle": %q, "percent": 1}`, h))
}

func TestAParkedExecutionWaitsForSomebodyElse(t *testing.T) {
	w := newWorld(t)
	w.sends("mail", 1)
	h := w.fetch("mail", 1)[0]
	parked := w.ok("POST", "/api/v1/pull/park", fmt.Sprintf(`{"handle": %q, "for": "24h"}`, h))
	require.Equal(t, "Executing", parked["status"])
	require.Equal(t, true, at(parked, "worker_states.0.parked"))
	until := at(w.ok("POST", "/api/v1/pull/ping", fmt.Sprintf(`{"handles": [%q]}`, h)), "executions.0.until").(string)
	at24h, err := time.Parse(time.RFC3339, until)
	require.NoError(t, err)
	require.Greater(t, time.Until(at24h), 23*time.Hour)
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/pull/park", fmt.Sprintf(`{"handle": %q, "for": "-1s"}`, h)), "body.for")
	require.Equal(t, "Success", w.ok("POST", "/api/v1/pull/complete", fmt.Sprintf(`{"handle": %q, "result": "approved"}`, h))["status"])
	w.fails(http.StatusConflict, "POST", "/api/v1/pull/park", fmt.Sprintf(`{"handle": %q, "for": "1h"}`, h))
}
