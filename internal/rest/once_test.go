package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestARepetitionGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t).as("Idempotency-Key", "request-1")
	for path, body := range map[string]string{
		"/api/v1/tasks":       `{"type": "mail", "args": {"to": "a@example.org"}}`,
		"/api/v1/tasks/batch": `{"tasks": [{"type": "mail"}, {"type": "sms"}]}`,
		"/api/v1/plans":       `{"station": "report", "plan_type": "none", "messages": [1]}`,
		"/api/v1/flows":       `{"nodes": [{"id": "a", "type": "mail"}]}`,
		"/api/v1/periodics":   `{"name": "nightly", "cron": "@daily", "type": "mail", "enabled": true}`,
	} {
		first := w.do("POST", path, body)
		require.Less(t, first.status, 300, "%s: %s", path, first.text)
		if id, ok := first.body["id"].(string); ok && path == "/api/v1/tasks" { // what has become of it does not matter
			w.ok("POST", "/api/v1/tasks/"+id+"/cancel", "")
		}
		again := w.do("POST", path, body)
		require.Equal(t, first.status, again.status, path)
		require.Equal(t, first.text, again.text, path)
		require.Equal(t, first.header.Get("ETag"), again.header.Get("ETag"), path)
		require.Equal(t, first.header.Get("Content-Type"), again.header.Get("Content-Type"), path)
	}
}

func TestAKeyIsForOneRequest(t *testing.T) {
	w := newWorld(t).as("Idempotency-Key", "request-1")
	w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks", `{"type": "sms"}`)["header.Idempotency-Key"], "another request")
	require.EqualValues(t, 1, w.ok("GET", "/api/v1/tasks/count", "")["count"])
	w.as("Idempotency-Key", "request-2").ok("POST", "/api/v1/tasks", `{"type": "sms"}`)
	require.EqualValues(t, 2, w.ok("GET", "/api/v1/tasks/count", "")["count"])
}

func TestARefusalIsNotTheAnswerToACorrectedRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t).as("Idempotency-Key", "request-1")
	w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks", `{"type": "mail", "priority": 99}`)
	require.Equal(t, true, w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`)["created"])
	w.as("Idempotency-Key", "request-2").fails(http.StatusRequestEntityTooLarge, "POST", "/api/v1/tasks", `{"type": "mail", "remark": "`+strings.Repeat("x", 9<<20)+`"}`)
}

func TestTheKeysOfTwoTokensAreNotTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.with(access.Operator, "acme"), w.with(access.Operator, "globex")
	first := one.as("Idempotency-Key", "request-1").ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	second := two.as("Idempotency-Key", "request-1").ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	require.Equal(t, "acme/mail/request-1", first["id"])
	require.Equal(t, "globex/mail/request-1", second["id"])
}

// The process dies after it has stored a task, or cannot store its answer: the repetition makes no other.
func TestWhatAnAnswerWasNotStoredOfIsDoneOnce(t *testing.T) {
	t.Parallel()
	px := testdb.Behind(t)
	w := newWorld(t, func(c *rest.Config) { c.Database = testdb.Through(t, px) })
	w = w.as("Idempotency-Key", "request-1")
	trap := px.Set(proxy.Rule{Command: "insert", Collection: "answers", Do: proxy.CutBefore, Times: -1})
	first := w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	require.Equal(t, true, first["created"])
	require.Positive(t, trap.Sprung())
	trap.Release()
	again := w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	require.Equal(t, first["id"], again["id"])
	require.Equal(t, first["generation"], again["generation"])
	require.EqualValues(t, 1, w.ok("GET", "/api/v1/tasks/count", "")["count"])
	require.Equal(t, again, w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`))
}

// A client repeats a batch because one of its tasks was not stored.
func TestABatchIsRepeatedForTheTasksThatWereNotStored(t *testing.T) {
	t.Parallel()
	px := testdb.Behind(t)
	w := newWorld(t, func(c *rest.Config) { c.Database = testdb.Through(t, px) })
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "known", "args": 1}`)
	w = w.as("Idempotency-Key", "request-1")
	const batch = `{"tasks": [{"type": "mail"}, {"type": "mail", "key": "known", "args": 2, "existing": ["update-args"]}]}`
	trap := px.Set(proxy.Rule{Collection: "tasks", Command: "update", Do: proxy.Refuse, Code: 13, Times: -1})
	first := w.ok("POST", "/api/v1/tasks/batch", batch)
	require.Positive(t, trap.Sprung())
	require.Equal(t, true, at(first, "tasks.0.created"))
	require.NotEmpty(t, at(first, "tasks.1.error"))
	trap.Release()

	second := w.ok("POST", "/api/v1/tasks/batch", batch)
	require.Nil(t, at(second, "tasks.1.error"))
	require.EqualValues(t, 2, w.ok("GET", "/api/v1/tasks/-/mail/known", "")["args"])
	require.Equal(t, "-/mail/request-1-0", at(second, "tasks.0.id"))
	require.Equal(t, false, at(second, "tasks.0.created"), "it is stored once")
	require.Equal(t, second, w.ok("POST", "/api/v1/tasks/batch", batch))
}

// The process died before it stored its answer: the rule is there, and enabled.
func TestARuleWhoseAnswerWasNotStoredIsCreatedOnce(t *testing.T) {
	t.Parallel()
	const rules = "/api/v1/periodics"
	const body = `{"name": "nightly", "cron": "@daily", "type": "mail", "enabled": true}`
	w := newWorld(t)
	w.ok("POST", rules, body)
	w.fails(http.StatusConflict, "POST", rules, body)
	w.as("Idempotency-Key", "other").fails(http.StatusConflict, "POST", rules, `{"name": "nightly", "cron": "@hourly", "type": "mail"}`)
	w = w.as("Idempotency-Key", "request-1")
	again := w.do("POST", rules, body)
	require.Equal(t, http.StatusCreated, again.status, again.text)
	require.Equal(t, "online", again.body["status"])
	require.Equal(t, again.text, w.do("POST", rules, body).text)
	require.Len(t, w.ok("GET", rules, "")["rules"], 1)
}

// A request that enables its rule does so in the write that creates it.
func TestARuleThatWasNeverEnabledIsNotThatOfARequestThatEnablesIt(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/periodics", `{"name": "nightly", "cron": "@daily", "type": "mail"}`)
	w = w.as("Idempotency-Key", "request-1")
	w.fails(http.StatusConflict, "POST", "/api/v1/periodics", `{"name": "nightly", "cron": "@daily", "type": "mail", "enabled": true}`)
	w.ok("POST", "/api/v1/periodics", `{"name": "nightly", "cron": "@daily", "type": "mail"}`)
}

// An edit names the version that the client read, which is not there any more when the request is repeated.
func TestATypeIsStoredOnceByARepetition(t *testing.T) {
	w := newWorld(t)
	const mail = "/api/v1/types/mail"
	create := w.as("Idempotency-Key", "request-1", "If-None-Match", "*")
	created := create.do("PUT", mail, `{"max_running": 2}`)
	require.Equal(t, http.StatusOK, created.status, created.text)
	edit := w.as("Idempotency-Key", "request-2", "If-Match", created.header.Get("ETag"))
	edited := edit.do("PUT", mail, `{"max_running": 3}`)
	require.Equal(t, http.StatusOK, edited.status, edited.text)
	require.NotEqual(t, created.header.Get("ETag"), edited.header.Get("ETag"))

	again := create.do("PUT", mail, `{"max_running": 2}`)
	require.Equal(t, created.text, again.text, "although the type has changed since")
	require.Equal(t, created.header.Get("ETag"), again.header.Get("ETag"))
	create.fails(http.StatusUnprocessableEntity, "PUT", mail, `{"max_running": 4}`)
	w.as("Idempotency-Key", "request-1", "If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", mail, `{"max_running": 2}`)

	_, err := w.db.Collection("answers").DeleteMany(t.Context(), bson.D{}) // as if the process had died before it stored them
	require.NoError(t, err)
	again = edit.do("PUT", mail, `{"max_running": 3}`)
	require.Equal(t, edited.text, again.text)
	require.Equal(t, edited.header.Get("ETag"), again.header.Get("ETag"), "it is stored once")
	create.fails(http.StatusPreconditionFailed, "PUT", mail, `{"max_running": 2}`) // it is not as the request says any more
}

func TestAnswersAreKeptForADay(t *testing.T) {
	w := newWorld(t).as("Idempotency-Key", "request-1")
	w.ok("POST", "/api/v1/tasks", `{"type": "mail"}`)
	cur, err := w.db.Collection("answers").Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	for _, index := range cur {
		if index.Name == "delete" {
			require.NotNil(t, index.ExpireAfterSeconds)
			require.Zero(t, *index.ExpireAfterSeconds)
			n, err := w.db.Collection("answers").CountDocuments(t.Context(), bson.D{{Key: "delete_at", Value: bson.D{{Key: "$exists", Value: true}}}})
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			return
		}
	}
	require.Fail(t, "nothing deletes them")
}
