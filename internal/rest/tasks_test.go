package rest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestATaskIsSentOnceAndRead(t *testing.T) {
	w := newWorld(t)
	const task = `{"type": "mail", "key": "order/17", "args": {"to": "ann", "n": 9007199254740993}, "priority": 9, "in": "1h",
		"options": {"timeout": "5m", "retry": {"max_errors": 3}}}`
	first := w.do("POST", "/api/v1/tasks", task)
	require.Equal(t, http.StatusCreated, first.status, first.text)
	require.Equal(t, "-/mail/order/17", first.body["id"])
	require.Equal(t, true, first.body["created"])
	require.Equal(t, "New", first.body["status"])

	again := w.do("POST", "/api/v1/tasks", task)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, false, again.body["created"])

	got := w.do("GET", "/api/v1/tasks/-/mail/order%2F17", "")
	require.Equal(t, http.StatusOK, got.status, got.text)
	require.Equal(t, "-/mail/order/17", got.body["id"])
	require.Contains(t, got.text, `"n":9007199254740993`, "numbers are not rounded")
	require.EqualValues(t, 300_000, at(got.body, "options.execution_timeout_ms"))
	require.EqualValues(t, 3, at(got.body, "options.retry.max_errors"))
	require.Equal(t, `"1"`, got.header.Get("ETag"))

	require.Contains(t, w.fails(http.StatusNotFound, "GET", "/api/v1/tasks/-/mail/none", "")[""], "-/mail/none")
}

func TestAnIdempotencyKeyIsTheKeyOfATaskWithoutOne(t *testing.T) {
	w := newWorld(t).as("Idempotency-Key", "request-1")
	first := w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	require.Equal(t, "-/mail/request-1", first["id"])
	require.Equal(t, first, w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`))
	require.Equal(t, "-/mail/own", w.as("Idempotency-Key", "request-2").ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "own"}`)["id"])
	many := w.ok("POST", "/api/v1/tasks/batch", `{"tasks": [{"type": "mail"}, {"type": "sms"}]}`)
	require.Equal(t, "-/mail/request-1-0", at(many, "tasks.0.id"))
	require.Equal(t, "-/sms/request-1-1", at(many, "tasks.1.id"))
}

func TestEachWrongFieldIsNamedAndNothingIsStored(t *testing.T) {
	w := newWorld(t)
	for body, want := range map[string]map[string]string{
		`{}`: {"body.type": "is required"},
		`{"type": "mail", "priority": 12, "options": {"retry": {"max_errors": -1}}}`:     {"body.priority": "12", "body.options.retry.max_errors": "-1"},
		`{"type": "mail", "prioritty": 1, "options": {"timeout": "soon", "retries": 3}}`: {"body.prioritty": "not known", "body.options.timeout": "soon", "body.options.retries": "not known"},
		`{"type": "http", "args": {"url": "ftp://example.org"}}`:                         {"body.args.url": "ftp"},
		`{"type": "mail", "start_time": "tomorrow", "in": "5m"}`:                         {"body.in": "start_time"},
		`[1]`: {"body": "list"},
	} {
		errs := w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks", body)
		for field, text := range want {
			require.Contains(t, errs[field], text, "%s: %v", body, errs)
		}
	}
	w.fails(http.StatusBadRequest, "POST", "/api/v1/tasks", "")
	w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks", `{"type": `)
	errs := w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks/batch", `{"tasks": [{"type": "mail"}, {"type": "a b"}, {"type": "mail", "priority": -1}]}`)
	require.Contains(t, errs, "body.tasks[1].type")
	require.Contains(t, errs, "body.tasks[2].priority")
	w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks/batch", `{"tasks": []}`)
	require.EqualValues(t, 0, w.ok("GET", "/api/v1/tasks/count", "")["count"])
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks?stats=New", ""), "query.stats")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks?status=Odd", "")["status"], "Odd")
}

func TestTasksAreListedPageByPage(t *testing.T) {
	t.Parallel()
	for sort, want := range map[string][]any{"id": {"k0", "k2", "k4", "k1", "k3"}, "-id": {"k3", "k1", "k4", "k2", "k0"}} {
		t.Run(sort, func(t *testing.T) { listsPageByPage(t, sort, want) })
	}
}

func listsPageByPage(t *testing.T, sort string, want []any) {
	w := newWorld(t)
	for i := range 5 {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k%d", "tenant": "t%d"}`, i, i%2))
	}
	require.EqualValues(t, 3, w.ok("GET", "/api/v1/tasks/count?tenant=t0", "")["count"])
	var seen []any
	for token := ""; ; {
		page := w.ok("GET", "/api/v1/tasks?type=mail&limit=2&sort="+sort+"&page_token="+token, "")
		for _, task := range page["tasks"].([]any) {
			seen = append(seen, at(task, "key"))
		}
		next, _ := page["next"].(string)
		if token = next; token == "" {
			break
		}
	}
	require.Equal(t, want, seen)
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks?page_token=nonsense", "")
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks?limit=0", "")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks?sort=due_at", "")["query.sort"], "id, -id")
	first := w.ok("GET", "/api/v1/tasks?limit=1&sort=-id", "")["next"].(string)
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks?limit=1&page_token="+first, ""), "page_token", "it is of the other order")
}

func TestCommandsOnATaskAnswerWithWhatItIsThen(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "held": true}`)
	const task = "/api/v1/tasks/-/mail/k"
	require.Equal(t, string(model.StatusNew), w.ok("POST", task+"/release", "")["status"])
	cancelled := w.ok("POST", task+"/cancel", `{"remark": "not needed"}`)
	require.Equal(t, string(model.StatusCancelled), cancelled["status"])
	require.Equal(t, "not needed", cancelled["remark"])
	first := fmt.Sprintf("%.0f", cancelled["generation"])
	require.Contains(t, w.fails(http.StatusConflict, "POST", task+"/release", "")[""], "Cancelled")
	require.Equal(t, string(model.StatusNew), w.ok("POST", task+"/retry", "")["status"])
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", task+"/cancel", `{"reason": "x"}`), "body.reason")
	w.ok("POST", task+"/cancel", "")
	require.Contains(t, w.fails(http.StatusConflict, "POST", task+"/redeliver", "")[""], "callback")
	require.Len(t, w.ok("GET", task+"/lives", "")["tasks"], 2)
	require.Equal(t, "not needed", w.ok("GET", task+"?generation="+first, "")["remark"])
	require.Equal(t, string(model.StatusCancelled), w.ok("GET", task+"/wait", "")["status"])
}

func TestAWaitEndsWhenItsTimeIsOverAndWhenTheServerStops(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	require.Equal(t, "New", w.ok("GET", "/api/v1/tasks/-/mail/k/wait?timeout_ms=1", "")["status"])
	ended := make(chan answer)
	go func() { ended <- w.do("GET", "/api/v1/tasks/-/mail/k/wait?timeout_ms=50000", "") }()
	w.api.Stop()
	require.Equal(t, "New", testdb.Receive(t, ended).body["status"])
}

func TestAServiceMountsTheAPIUnderAPathOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *rest.Config) { c.Mount = "/scheduler" })
	require.EqualValues(t, 0, w.ok("GET", "/api/v1/tasks/count", "")["count"])
	require.Equal(t, "/scheduler/", at(w.ok("GET", "/api/v1/openapi.json", ""), "servers.0.url"))
	_, err := rest.New(rest.Config{Database: w.db, Mount: "scheduler/"})
	require.ErrorIs(t, err, model.ErrInvalid)
}

func TestAPathWithoutAnOperationIsToldAsAProblem(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/nowhere", "/api/v1", "/api/v1/tasks/-/mail"} {
		require.Contains(t, w.fails(http.StatusNotFound, "GET", path, "")[""], "nothing")
	}
	a := w.do("DELETE", "/api/v1/tasks", "")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "GET, POST", a.header.Get("Allow"))
}

func TestATaskIsChangedOnlyAsItWasRead(t *testing.T) {
	w := newWorld(t)
	const task = "/api/v1/tasks/-/mail/k"
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "in": "1h", "options": {"retry": {"max_errors": 3}, "worker_timeout": "1m", "ping_interval": "5s"}}`)
	w.fails(http.StatusPreconditionRequired, "PATCH", task, `{"priority": 9}`)
	w.as("If-Match", "7").fails(http.StatusUnprocessableEntity, "PATCH", task, `{"priority": 9}`)
	read := w.do("GET", task, "").header.Get("ETag")
	changed := w.as("If-Match", read).do("PATCH", task, `{"priority": 9, "args": {"n": 1}, "options": {"retry": {"interval": "5s"}, "worker_timeout": "2m"}}`)
	require.Equal(t, http.StatusOK, changed.status, changed.text)
	require.NotEqual(t, read, changed.header.Get("ETag"))
	require.EqualValues(t, 9, changed.body["priority"])
	require.EqualValues(t, 3, at(changed.body, "options.retry.max_errors"), "what is not said stays")
	require.EqualValues(t, 5000, at(changed.body, "options.retry.interval_ms"))
	require.EqualValues(t, 5000, at(changed.body, "options.ping_interval_ms"))
	require.EqualValues(t, 120_000, at(changed.body, "options.worker_timeout_ms"))
	w.as("If-Match", read).fails(http.StatusPreconditionFailed, "PATCH", task, `{"priority": 1}`)
	w.as("If-Match", read).fails(http.StatusPreconditionFailed, "PATCH", task, `{"options": {"worker_timeout": "3m"}}`)

	whatever := w.as("If-Match", "*")
	for body, field := range map[string]string{
		`{"type": "sms"}`: "body.type", `{"key": "l"}`: "body.key", `{"tenant": "x"}`: "body.tenant", `{"held": true}`: "body.held", `{}`: "body.options",
		`{"priority": 10}`: "body.priority", `{"options": {"ping_interval": "1h"}}`: "body.options.ping_interval",
	} {
		require.Contains(t, whatever.fails(http.StatusUnprocessableEntity, "PATCH", task, body), field, body)
	}
	w.ok("POST", task+"/cancel", "")
	whatever.fails(http.StatusConflict, "PATCH", task, `{"priority": 1}`)
}

func TestLivesHavePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []any
	first := w.ok("POST", "/api/v1/tasks", `{"type": "t", "key": "k"}`)
	want = append(want, first["generation"])
	for range 6 {
		w.ok("POST", "/api/v1/tasks/-/t/k/cancel", "")
		want = append([]any{w.ok("POST", "/api/v1/tasks/-/t/k/retry", "")["generation"]}, want...)
	}
	for _, limit := range []int{1, 2, 3, 7, 100} {
		require.Equal(t, want, w.pages(fmt.Sprint("/api/v1/tasks/-/t/k/lives?limit=", limit), "tasks", "generation"), limit)
	}
	w.fails(http.StatusNotFound, "GET", "/api/v1/tasks/-/t/nobody/lives", "")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tasks/-/t/k/lives?page_token=x", ""), "page_token")
}

func TestADurationOfARequestCountsFromTheTimeOfTheDatabase(t *testing.T) {
	px := testdb.Behind(t)
	px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		var doc bson.M
		if command != "findAndModify" || bson.Unmarshal(answer, &doc) != nil {
			return answer
		}
		value, _ := doc["value"].(bson.D)
		for i := range value {
			if at, is := value[i].Value.(bson.DateTime); is && value[i].Key == "at" {
				value[i].Value = at.Time().Add(24 * time.Hour)
			}
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			return answer
		}
		return raw
	})
	w := newWorld(t, func(c *rest.Config) { c.Database = testdb.Through(t, px) })
	sent := w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "start_time": "1h"}`)
	task := w.ok("GET", "/api/v1/tasks/-/mail/k", "")
	at, err := time.Parse(time.RFC3339, task["start_time"].(string))
	require.NoError(t, err, sent)
	require.Greater(t, time.Until(at), 24*time.Hour)
	w.as("If-Match", "*").ok("PATCH", "/api/v1/tasks/-/mail/k", `{"start_time": "2h"}`)
	at, err = time.Parse(time.RFC3339, w.ok("GET", "/api/v1/tasks/-/mail/k", "")["start_time"].(string))
	require.NoError(t, err)
	require.Greater(t, time.Until(at), 25*time.Hour)
}
