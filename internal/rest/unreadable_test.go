package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// One document that a later release or a person wrote hides none of the others, on no page of its list. The list
// names it, with the reason.
func TestADocumentThatCannotBeReadBreaksNoList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "t"}`)
	rule := w.ok("GET", nightly, "")["id"].(string)
	for i := range 5 {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "plain", "key": "k%d"}`, i))
		w.ok("POST", "/api/v1/flows", fmt.Sprintf(`{"key": "f%d", "nodes": [{"id": "a", "type": "t"}]}`, i))
		w.ok("POST", fmt.Sprintf("/api/v1/streams/s/g%d/nodes", i), `{"nodes": [{"type": "t"}]}`)
		_, err := w.db.Collection("periodic_runs").InsertOne(t.Context(), bson.D{
			{Key: "_id", Value: fmt.Sprintf("%s@%d", rule, i)}, {Key: "rule_id", Value: rule}, {Key: "rule_name", Value: "nightly"}, {Key: "nominal", Value: bson.DateTime(1000 * (9 - i))}, {Key: "status", Value: "SUCCESS"},
		})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		coll, ids, field, list, things, value string
		order                                 []any
	}{
		{"tasks", "-/plain/k%d", "priority", "/api/v1/tasks?type=plain", "tasks", "key", []any{"k0", "k4"}},
		{"flows", "-/f%d", "rev", "/api/v1/flows?tenant=-&sort=updated_at", "flows", "key", []any{"f0", "f4"}},
		{"flows", "s/g%d", "rev", "/api/v1/streams?all=true", "streams", "stream", []any{"s/g0", "s/g4"}},
		{"periodic_runs", rule + "@%d", "attempt", "/api/v1/runs?status=SUCCESS", "runs", "id", []any{rule + "@0", rule + "@4"}},
		{"periodic_runs", rule + "@%d", "attempt", nightly + "/runs?sort=-nominal", "runs", "id", []any{rule + "@0", rule + "@4"}},
	} {
		for i := 1; i < 4; i++ {
			res, err := w.db.Collection(c.coll).UpdateByID(t.Context(), fmt.Sprintf(c.ids, i), bson.D{{Key: "$set", Value: bson.D{{Key: c.field, Value: "many"}}}})
			require.NoError(t, err)
			require.EqualValues(t, 1, res.MatchedCount, c.list)
		}
		for _, limit := range []string{"1", "2", "3", "100"} {
			require.Equal(t, c.order, w.pages(c.list+"&limit="+limit, c.things, c.value), "%s by %s", c.list, limit)
		}
		unread := w.ok("GET", c.list, "")["unreadable"].([]any)
		require.Len(t, unread, 3, c.list)
		require.Equal(t, fmt.Sprintf(c.ids, 1), at(unread, "0.id"), c.list)
		require.Contains(t, at(unread, "0.error"), c.field, c.list)
	}
}

func TestWorkersAndTypesAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var workers, types []any
	for i := range 5 {
		id := fmt.Sprintf("worker-%d", i)
		_, err := w.db.Collection("workers").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "host", Value: "h"}, {Key: "types", Value: bson.A{"t"}}})
		require.NoError(t, err)
		w.as("If-None-Match", "*").ok("PUT", fmt.Sprintf("/api/v1/types/t%d", i), `{}`)
		workers, types = append(workers, id), append(types, fmt.Sprintf("t%d", i))
	}
	_, err := w.db.Collection("task_types").UpdateByID(t.Context(), "t1", bson.D{{Key: "$set", Value: bson.D{{Key: "max_running", Value: "many"}}}})
	require.NoError(t, err)
	for _, limit := range []string{"1", "2", "5", "100"} {
		require.Equal(t, workers, w.pages("/api/v1/workers?limit="+limit, "workers", "id"), limit)
		require.Equal(t, slices.Delete(slices.Clone(types), 1, 2), w.pages("/api/v1/types?limit="+limit, "types", "code"), limit)
	}
	_, err = w.db.Collection("workers").UpdateByID(t.Context(), "worker-3", bson.D{{Key: "$set", Value: bson.D{{Key: "heartbeat_at", Value: bson.DateTime(1 << 42)}}}})
	require.NoError(t, err)
	require.Equal(t, []any{"worker-3"}, w.pages("/api/v1/workers?state=alive&limit=2", "workers", "id"))
	require.Equal(t, slices.Delete(slices.Clone(workers), 3, 4), w.pages("/api/v1/workers?state=dead&limit=2", "workers", "id"), "also those that were never heard of")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/workers?state=ill", ""), "query.state")
	unread := w.ok("GET", "/api/v1/types", "")["unreadable"].([]any)
	require.Equal(t, "t1", at(unread, "0.id"))
	require.Contains(t, at(unread, "0.error"), "max_running")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/workers?page_token=x", ""), "page_token")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/types?page_token=x", ""), "page_token")
}
