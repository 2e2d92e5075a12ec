package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/server"
)

// Each list of the API, with each of its filters and orders, reads an index, and of that no more than a page
// may, although what it looks for is the last of thousands, or nowhere. The lists are those of the OpenAPI.
func TestEveryListReadsABoundedPartOfAnIndex(t *testing.T) {
	onEnginesAtFullSize(t, withoutRace(slowInLong(func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		few := 3 * store.PageExamines / 2
		n := e.Of(12_000, few)
		testdb.Fill(t, x.db, n, few)
		api, err := server.New(server.Config{Database: x.db, NoTokens: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, api.Close(context.Background())) })
		get := func(t *testing.T, path string) (body []byte) {
			t.Helper()
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/api/v1/"+path, nil)
			r.RemoteAddr = "127.0.0.1:1234"
			api.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
			return w.Body.Bytes()
		}
		get(t, "tasks") // what a server reads once is read
		lists := listsOf(t, get(t, "openapi.json"))
		for _, list := range lists {
			tried := testdb.Lists[list.ID]
			require.NotEmpty(t, tried, "%s has no requests in testdb.Lists", list.ID)
			var names []string
			for _, path := range tried {
				u, err := url.Parse(path)
				require.NoError(t, err)
				for name := range u.Query() {
					names = append(names, name)
				}
			}
			for _, p := range list.Parameters {
				if p.In == "query" && p.Name != "limit" && p.Name != "page_token" {
					require.Contains(t, names, p.Name, "%s: no request in testdb.Lists has that parameter", list.ID)
				}
			}
			for _, path := range tried {
				t.Log(path)
				if list.ID == "list-executions" {
					x.explain("aggregate", func() { get(t, path) }).within(t, most(list.ID, path), most(list.ID, path))
					continue
				}
				x.explain("find", func() { get(t, path) }).within(t, most(list.ID, path), most(list.ID, path))
				if path == "stats?tenant=t5" { // it counts
					x.explain("aggregate", func() { get(t, path) }).within(t, most(list.ID, path), most(list.ID, path))
				}
			}
		}
		pending, failed := n/1000, n/500 // a count is exact, and reads no others
		for path, want := range map[string]int{"status=Pending": pending, "status=Failure,Pending,Failure": pending + failed, "status=Failure&type=mail": failed, "status=Pending&tenant=t5&type=mail": pending, "status=Pending&tenant=rare": 0} {
			x.explain("aggregate", func() {
				require.JSONEq(t, fmt.Sprintf(`{"count": %d}`, want), string(get(t, "tasks/count?"+path)), path)
			}).within(t, want+2, want)
		}
		// Page by page everything is found once, in its order, although pages end where the server stops.
		for path, want := range map[string]int{
			"flows?tenant=rare": 1, "plans?tenant=rare": 1, "runs?tenant=rare": 1, "flows?limit=700": few, "flows?limit=700&sort=updated_at": few,
			"plans?tenant=t5&sort=updated_at&limit=90": few / 10, "runs?limit=700": few, "runs?limit=700&sort=nominal": few, "runs?status=RUNNING": 0,
			"tasks?status=Pending,Failure&limit=5": pending + failed, "tasks?status=Failure,Pending&limit=5&sort=-id": pending + failed, "tasks?status=Failure&type=mail&limit=5&sort=-id": failed,
			"tasks?status=Failure&creator=nobody": 0, "tasks?error=nobody": 0, "tasks?arg=to.name=nobody": 0, "tasks?status=Pending,Failure&limit=5&history=also": pending + failed,
		} {
			kind, _, _ := strings.Cut(path, "?")
			var ids []string
			for next := ""; ; {
				var page map[string]json.RawMessage
				require.NoError(t, json.Unmarshal(get(t, path+"&page_token="+next), &page))
				var things []struct{ ID string }
				require.NoError(t, json.Unmarshal(page[kind], &things))
				for _, thing := range things {
					ids = append(ids, thing.ID)
				}
				if next = strings.Trim(string(page["next"]), `"`); next == "" {
					break
				}
			}
			require.Len(t, ids, want, path)
			slices.Sort(ids)
			require.Len(t, slices.Compact(ids), want, path)
		}
	})))
}

// most is how many keys, and how many documents, the server may examine for a page.
func most(id, path string) int {
	const page, some = 100, 30
	switch {
	case path == "tasks?limit=1000":
		return 1000 + some
	case slices.Contains([]string{"tasks", "tasks?sort=-id", "tasks?tenant=t5", "tasks?tenant=t5&type=mail&sort=-id"}, path):
		return page + some
	case strings.HasPrefix(path, "tasks?status=Pending") || strings.HasPrefix(path, "tasks?status=Failure"): // which are few
		return page + some
	case id == "list-tasks" && strings.Contains(path, "history=also"):
		return 2*2*10_000 + some
	case id == "list-tasks":
		return 2*10_000 + some
	case id == "list-streams" && strings.Contains(path, "status="):
		return 2*store.PageExamines + 5000 + page + some
	case id == "list-streams":
		return 5000 + page + some
	case id == "get-series-of-types": // of a hundred types all slots that are kept
		return 2*100*100 + some
	case id == "list-executions":
		return 2*10_000 + some
	case id == "get-stats":
		return 10_000 + 5000 + some
	case strings.HasPrefix(id, "list-runs"): // they look at the tasks of runs
		return 3*store.PageExamines + 5*page + some
	case slices.Contains([]string{"list-flows", "list-plans", "list-audit"}, id):
		return 2*store.PageExamines + page + some
	default:
		return 2*page + some
	}
}

// described is an operation of the OpenAPI.
type described struct {
	ID         string `json:"operationId"`
	Parameters []struct{ Name, In string }
}

// listsOf are the operations of the description that list something, or sum it up.
func listsOf(t *testing.T, text []byte) (out []described) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	for path, methods := range doc.Paths {
		var op described
		if methods["get"] == nil {
			continue
		}
		require.NoError(t, json.Unmarshal(methods["get"], &op), path)
		paged := slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.Name == "page_token" })
		if paged || strings.HasPrefix(op.ID, "list-") || op.ID == "get-stats" || strings.HasPrefix(op.ID, "get-series") {
			out = append(out, op)
		}
	}
	require.Greater(t, len(out), 15, fmt.Sprint(out))
	slices.SortFunc(out, func(a, b described) int { return strings.Compare(a.ID, b.ID) })
	return out
}
