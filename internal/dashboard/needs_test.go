package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/measure"
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
	require.Contains(t, text, `<b>Last heard of <time`)
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

func TestTasksAreFoundByErrorAndArguments(t *testing.T) {
	w := newWorld(t)
	for key, args := range map[string]any{"a": map[string]any{"order": map[string]any{"id": 17}, "to": "<b>ann</b>"}, "b": map[string]any{"order": map[string]any{"id": 18}}} {
		w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": key, "args": args})
	}
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), "-/mail/b", bson.D{{Key: "$set", Value: bson.D{{Key: "error_info", Value: "550 <No> such $mailbox"}}}})
	require.NoError(t, err)
	found := func(query url.Values) (keys string) {
		status, text := w.page("/tasks?" + query.Encode())
		require.Equal(t, http.StatusOK, status)
		for _, m := range regexp.MustCompile(`data-path="/tasks/-/mail/(.)"`).FindAllStringSubmatch(text, -1) {
			keys += m[1]
		}
		for name := range query {
			for _, value := range query[name] {
				require.Contains(t, text, `name="`+name+`" value="`+html.EscapeString(value)+`"`)
			}
		}
		return keys
	}
	require.Equal(t, "b", found(url.Values{"error": {"<no> SUCH $"}}))
	require.Empty(t, found(url.Values{"error": {"5.0"}}))
	require.Equal(t, "a", found(url.Values{"arg": {"order.id=17", "to=<b>ann</b>"}}))
	require.Empty(t, found(url.Values{"arg": {"order.id=17", "to=bob"}}))
	status, text := w.page("/tasks?arg=order.$id%3D1")
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, text, "want names of fields")
	status, text = w.page("/download/tasks.jsonl?arg=order.id%3D18&arg=")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "-/mail/b")
	require.NotContains(t, text, "-/mail/a")
}

func TestManyWorkersAndTypesAreShownPageByPage(t *testing.T) {
	w := newWorld(t)
	var docs, types []any
	for i := range 120 {
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("worker-%03d", i)}, {Key: "host", Value: "h"}, {Key: "types", Value: bson.A{"mail"}}, {Key: "heartbeat_at", Value: bson.DateTime(1 << 42)}})
		types = append(types, bson.D{{Key: "_id", Value: fmt.Sprintf("type-%03d", i)}, {Key: "version", Value: int64(1)}})
	}
	_, err := w.db.Collection("workers").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	_, err = w.db.Collection("task_types").InsertMany(t.Context(), types)
	require.NoError(t, err)
	next := regexp.MustCompile(`id="next" href="([^"]+)"`)
	for _, list := range []string{"worker", "type"} {
		named := regexp.MustCompile(`href="/ui/` + list + `s/(` + list + `-\d+)"`)
		seen, pages := map[string]bool{}, 0
		for path := "/" + list + "s"; path != ""; pages++ {
			status, text := w.page(path)
			require.Equal(t, http.StatusOK, status, path)
			for _, m := range named.FindAllStringSubmatch(text, -1) {
				seen[m[1]] = true
			}
			after := next.FindStringSubmatch(text)
			if path = ""; after != nil {
				path = "/" + list + "s" + html.UnescapeString(after[1])
			}
		}
		require.Len(t, seen, 120, list)
		require.Equal(t, 3, pages, list)
	}
}

// The overview names a type in which half of the executions fail, also while its tasks are retried.
func TestTheOverviewNamesFailingTypes(t *testing.T) {
	w := newWorld(t)
	s := w.elsewhere()
	did := func(typ string, good, bad int64) {
		s.Measure.Types.Of(typ).Ended.Of(measure.Success).Add(good)
		s.Measure.Types.Of(typ).Ended.Of("error").Add(bad)
	}
	did("past", 0, 9)
	s.Clock.Skip(-30 * time.Minute)
	require.True(t, s.Series.Record(t.Context(), true))
	did("mail", 1, 1)
	did("report", 3, 2)
	did("mscheduler.callback", 0, 3)
	s.Clock.Skip(25 * time.Minute)
	require.True(t, s.Series.Record(t.Context(), true))
	for _, path := range []string{"/", "/?window=week"} {
		_, text := w.page(path)
		require.Contains(t, text, "At least half of the executions of this type fail: mail<", path)
		require.Contains(t, text, `<a class="tile bad" href="/ui/types/mail">`, path)
	}
	for _, typ := range []string{"mail", "report", "crawl"} {
		w.call(http.MethodPost, "/tasks", map[string]any{"type": typ, "key": "k", "held": true})
	}
	_, err := w.db.Collection("task_types").InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: "mail"}, {Key: "version", Value: int64(1)}}, bson.D{{Key: "_id", Value: "report"}, {Key: "version", Value: int64(1)}}})
	require.NoError(t, err)
	_, text := w.page("/types?state=failing")
	require.Contains(t, text, `href="/ui/types/mail"`)
	require.NotContains(t, text, `href="/ui/types/report"`)

	did("crawl", 0, 1)
	require.True(t, s.Series.Record(t.Context(), true))
	_, text = w.page("/")
	require.Contains(t, text, "At least half of the executions of these types fail: crawl, mail<")
	require.Contains(t, text, `href="/ui/types?state=failing"`)
}

// What fails beyond the first hundred types has no page of its own.
func TestTheOverviewNamesOtherTypesThatFail(t *testing.T) {
	w := newWorld(t)
	s := w.elsewhere()
	s.Measure.Types.Of(measure.Other).Ended.Of("error").Add(2)
	s.Clock.Skip(-5 * time.Minute)
	require.True(t, s.Series.Record(t.Context(), true))
	_, text := w.page("/")
	require.Contains(t, text, "At least half of the executions of this type fail: other types<")
	require.Contains(t, text, `<a class="tile bad" href="/ui/types">`)
}
