package rest_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestTasksAreSearchedByErrorAndArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for key, args := range map[string]string{"a": `{"order": {"id": 17}, "to": "ann, bob"}`, "b": `{"order": {"id": 18}, "to": "ann"}`, "c": `{"order": {"id": 17}}`} {
		w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "`+key+`", "args": `+args+`}`)
		_, err := w.db.Collection("tasks").UpdateByID(t.Context(), "-/mail/"+key, bson.D{{Key: "$set", Value: bson.D{{Key: "error_info", Value: "mailbox " + key + " is full (.*)"}, {Key: "status", Value: "Failure"}}}})
		require.NoError(t, err)
	}
	const tasks = "/api/v1/tasks?limit=1&"
	for _, c := range []struct {
		query url.Values
		want  []any
	}{
		{url.Values{"error": {"IS FULL (.*)"}}, []any{"a", "b", "c"}},
		{url.Values{"error": {"mailbox .* is"}}, nil},
		{url.Values{"key": {"b"}}, []any{"b"}},
		{url.Values{"key": {"b"}, "tenant": {"-"}, "type": {"mail"}, "error": {"mailbox a"}}, nil},
		{url.Values{"error": {"mailbox b"}, "status": {"Failure"}}, []any{"b"}},
		{url.Values{"arg": {"order.id=17"}}, []any{"a", "c"}},
		{url.Values{"arg": {"order.id=17", "to=ann, bob"}}, []any{"a"}},
		{url.Values{"arg": {"order.id=17"}, "error": {"mailbox C"}, "type": {"mail"}}, []any{"c"}},
	} {
		require.Equal(t, c.want, w.pages(tasks+c.query.Encode(), "tasks", "key"), c.query)
		require.EqualValues(t, len(c.want), w.ok("GET", "/api/v1/tasks/count?"+c.query.Encode(), "")["count"], c.query)
	}
	for query, field := range map[string]string{"error=a%00b": "error", "arg=order": "arg", "arg=order.$id=1": "arg"} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", tasks+query, ""), field, query)
	}
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", tasks+"key=a%00b", ""), "key")
	require.EqualValues(t, 1, w.ok("POST", "/api/v1/bulk", `{"action": "retry", "filter": {"key": "c"}, "dry_run": true}`)["matched"])
	job := `{"action": "retry", "filter": {"error": "mailbox", "arg": ["order.id=17"]}, "dry_run": true}`
	require.EqualValues(t, 2, w.ok("POST", "/api/v1/bulk", job)["matched"])
}
