package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestTheOverviewNamesDeadWorkers(t *testing.T) {
	w := newWorld(t)
	_, text := w.page("/")
	require.Contains(t, text, "Nothing needs you.")
	now, err := time.Parse(time.RFC3339, w.call(http.MethodGet, "/stats", nil)["at"].(string))
	require.NoError(t, err)
	_, err = w.db.Collection("workers").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "lost"}, {Key: "host", Value: "h"}, {Key: "types", Value: bson.A{"mail"}}, {Key: "heartbeat_at", Value: now.Add(-time.Hour)}})
	require.NoError(t, err)
	status, text := w.page("/")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `href="/ui/workers?state=dead"`)
	require.Contains(t, text, "worker is dead")
	_, text = w.page("/workers?state=dead")
	require.Contains(t, text, `href="/ui/workers/lost"`)
	_, text = w.page("/workers/lost")
	require.Contains(t, text, "Not heard of since")
}

func TestListsNameWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "later"})
	w.call(http.MethodPost, "/flows", map[string]any{"key": "later", "nodes": []any{map[string]any{"id": "a", "type": "mail"}}})
	w.call(http.MethodPost, "/streams/s/later/nodes", map[string]any{"nodes": []any{map[string]any{"type": "mail"}}})
	for _, coll := range []string{"tasks", "flows"} {
		_, err := w.db.Collection(coll).UpdateMany(t.Context(), bson.D{{Key: "_id", Value: bson.Regex{Pattern: "later$"}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "rev", Value: "many"}}}})
		require.NoError(t, err)
	}
	for path, says := range map[string]string{"/tasks?type=mail": "Tasks that this release cannot read", "/flows": "Flows that this release cannot read", "/streams": "Streams that this release cannot read"} {
		status, text := w.page(path)
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, text, says, path)
		require.Contains(t, text, "later cannot be read", path)
	}
}
