package dashboard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const crowded = `"queue": {"counted_at": "2026-01-01T00:00:00Z", "complete": true, "types": [{"type": "mail", "due": 1, "delayed": 0, "running": 0}, {"type": "other", "others": true, "due": 9, "delayed": 8, "running": 7}]}`

func TestWhatIsNotCountedByNameIsNotShownAsNothing(t *testing.T) {
	const ended = `"ended": {"complete": true, "from": "2026-01-01T00:00:00Z", "types": {"past": {"count": 2, "statuses": {"Success": 2}}}}`
	api := answers{
		"/api/v1/stats": `{` + crowded + `, ` + ended + `}`,
		"/api/v1/stats?type=rare&window_ms=3600000": `{"queue": {"counted_at": "2026-01-01T00:00:00Z", "complete": true, "types": [{"type": "rare", "due": 0, "delayed": 0, "running": 0, "uncounted": ["due", "delayed", "running"]}]}, ` + ended + `}`,
		"/api/v1/pauses":       `{"pauses": []}`,
		"/api/v1/types":        `{"types": [{"code": "rare"}, {"code": "served"}]}`,
		"/api/v1/workers":      `{"workers": [{"id": "w", "alive": true, "types": ["served"]}]}`,
		"/api/v1/series/types": `{"types": []}`,
		"/api/v1/series":       `{"slots": [], "window": "hour"}`,
		"/api/v1/tasks":        `{"tasks": []}`,
		"/api/v1/flows":        `{"flows": []}`,
		"/api/v1/runs":         `{"runs": []}`,
	}
	file := api.shown(t, "/download/types.csv")
	require.Contains(t, file, "\nrare,no worker,,,0,,,,")
	require.Contains(t, file, "\nserved,,,,1,,,,")
	require.Contains(t, file, "\nmail,no worker,,,0,0,,1,")
	row := func(text, typ string) string {
		_, after, found := strings.Cut(text, `href="/ui/types/`+typ+`"`)
		require.True(t, found, typ)
		before, _, _ := strings.Cut(after, "</tr>")
		return before
	}
	list := api.shown(t, "/types")
	require.Equal(t, 3, strings.Count(row(list, "rare"), `<td class="n">?</td>`))
	require.NotContains(t, row(list, "served"), "active")
	text := api.shown(t, "/types/rare")
	require.Contains(t, text, "No worker serves this type.")
	require.NotContains(t, text, "</span> active")
	overview := api.shown(t, "/")
	require.Equal(t, 3, strings.Count(row(overview, "past"), `<td class="n">?</td>`))
	require.NotContains(t, overview, "Some counts take too long", "the row of other types has them")
}

func TestACountOfWhatEndedSaysWhereItBegins(t *testing.T) {
	api := answers{
		"/api/v1/stats":        `{"queue": {"types": []}, "ended": {"complete": false, "from": "2026-02-03T04:05:06Z", "types": {"mail": {"count": 2, "statuses": {"Failure": 2}}}}}`,
		"/api/v1/pauses":       `{"pauses": []}`,
		"/api/v1/types":        `{"types": []}`,
		"/api/v1/workers":      `{"workers": []}`,
		"/api/v1/series/types": `{"types": []}`,
		"/api/v1/series":       `{"slots": [], "window": "hour"}`,
		"/api/v1/tasks":        `{"tasks": []}`,
		"/api/v1/flows":        `{"flows": []}`,
		"/api/v1/runs":         `{"runs": []}`,
	}
	for _, path := range []string{"/", "/types", "/types/mail", "/types/rare"} {
		require.Contains(t, api.shown(t, path), `the count begins <time datetime="2026-02-03T04:05:06Z">`, path)
	}
	require.NotContains(t, api.shown(t, "/types/rare"), "No task of the type has ended")
	require.Contains(t, api.shown(t, "/download/types.csv"), ",2026-02-03T04:05:06Z,2,2,")
}

func TestATallyThatIsNotCompleteIsTheLeastThereIs(t *testing.T) {
	api := answers{
		"/api/v1/me":    `{"name": "ann", "role": "viewer", "tenants": ["acme"]}`,
		"/api/v1/stats": `{"tasks": {"complete": false, "types": {"mail": {"Success": 10000}}}, "ended": {"complete": true, "types": {}}}`,
		"/api/v1/tasks": `{"tasks": []}`, "/api/v1/flows": `{"flows": []}`, "/api/v1/runs": `{"runs": []}`,
	}
	text := api.shown(t, "/")
	require.Equal(t, 2, strings.Count(text, "<b>0&#43;</b>"), "due, running")
	require.Contains(t, text, "The tenant has more tasks than are counted")
	require.NotContains(t, text, "No task waits or runs")
	api["/api/v1/stats"] = strings.Replace(api["/api/v1/stats"], `"complete": false`, `"complete": true`, 1)
	text = api.shown(t, "/")
	require.NotContains(t, text, "0&#43;")
	require.NotContains(t, text, "more tasks than are counted")
}
