package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A calendar shows what became of steps, not what they returned.
func TestTheCalendarOfAPlanShowsAMonthOfLargeResults(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/plans", map[string]any{
		"plan_id": "p", "station": "report", "plan_type": "day", "plan_value": 1, "plan_repet": -1, "plan_time": "2026-01-01T00:00:00Z", "messages": []any{"north"},
	})
	large := strings.Repeat("x", 1<<20)
	var docs []any
	for i := range 20 {
		at := bson.DateTime(1_767_225_600_000 + i*86_400_000) // of January 2026
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("-/p/%d/x", i)}, {Key: "plan", Value: "-/p"}, {Key: "plan_id", Value: "p"}, {Key: "step", Value: int64(i)},
			{Key: "state", Value: "OK"}, {Key: "plan_time", Value: at}, {Key: "at", Value: at}, {Key: "result", Value: large},
		})
	}
	_, err := w.db.Collection("plan_results").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	status, text := w.page("/plans/-/p?month=2026-01")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "January 2026")
	require.NotContains(t, text, "There are more")
}
