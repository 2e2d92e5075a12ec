package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestWhatWaitsForPeopleIsDecidedInItsRow(t *testing.T) {
	w, b := browse(t)
	w.seedTasks()
	b.looks("waiting", w.url+"/ui/waiting")
	b.visit(w.url + "/ui/waiting")
	b.run(chromedp.SendKeys(`tbody input[name="remark"]`, "sent by hand"), chromedp.Click(`form[data-call$="/resolve"] button`), chromedp.WaitVisible("#confirm"))
	require.Equal(t, "Yes\nBack", b.text("#confirm form"))
	b.run(chromedp.Click("#confirm-yes"))
	b.awaits(`document.querySelector("[data-part=waiting] .card.empty") !== null && !document.querySelector("[data-part=waiting] tbody")`)
	task := w.call(http.MethodGet, "/tasks/-/mail/invoice-4", nil)
	require.Equal(t, "ManuallyProcessed", task["status"])
	require.Equal(t, "sent by hand", task["remark"])
	b.quiet()
}

func TestEventsAreListedAsTheyHappenAndCanBePaused(t *testing.T) {
	w, b := browse(t)
	b.size(1440, 900, false)
	b.visit(w.url + "/ui/events?type=report")
	b.awaits(`document.querySelector("#events-state").textContent === "live"`)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "not-asked-for"})
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "report", "key": "<b>first</b>"})
	b.awaits(`document.querySelectorAll("#events tbody tr").length === 1`)
	require.Contains(t, b.text("#events tbody tr"), "-/report/<b>first</b>")
	b.run(chromedp.Click("#events-pause"))
	w.call(http.MethodPost, "/tasks/-/report/%3Cb%3Efirst%3C%2Fb%3E/cancel", map[string]any{"remark": "not needed"})
	b.awaits(`document.querySelector("#events-state").textContent === "paused, 1 more"`)
	b.run(chromedp.Click("#events-pause"))
	b.awaits(`document.querySelectorAll("#events tbody tr").length === 2`)
	require.Contains(t, b.text("#events tbody tr"), "Cancelled")
	b.run(chromedp.Evaluate(`URL.createObjectURL = (blob) => { blob.text().then((text) => { window.file = text; }); return "#"; }; 0`, nil), chromedp.Click(`[data-events-file=csv]`))
	b.awaits(`window.file?.startsWith('"At","Event","Of","Status","What"\r\n"20') && window.file.includes('"\'-/report/<b>first</b>","Cancelled"')`)
	b.run(chromedp.Click(`[data-events-file=jsonl]`))
	b.awaits(`window.file?.split("\n").length === 3 && JSON.parse(window.file.split("\n")[1]).status === "New"`)
	b.accessible()
	b.picture("events")
	b.looks("events-none", w.url+"/ui/events")
}

func TestTheAuditAndTheSystemAreShown(t *testing.T) {
	w, b := browse(t)
	w.seedTasks()
	w.call(http.MethodPost, "/types/mail/pause", nil)
	b.looks("audit", w.url+"/ui/audit")
	require.Contains(t, b.text("tbody tr"), "pause-type")
	b.looks("design", w.url+"/ui/design")
	b.looks("system", w.url+"/ui/system")
	b.run(chromedp.Click(`#run-checks`, chromedp.ByID), chromedp.WaitVisible("#main tbody tr", chromedp.ByQuery))
	require.Contains(t, b.text("#main tbody"), "all indexes are there")
	b.accessible()
	b.picture("system-checks")
	require.Contains(t, b.text(`[data-part="system"]`), "mail")
	status, text := w.page("/download/audit.csv?operation=pause-type")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "pause-type")
	require.NotContains(t, text, "send-task")
	b.quiet()
}

func TestATokenIsShownOnce(t *testing.T) {
	w, b := browse(t)
	b.visit(w.url + "/ui/access")
	b.run(chromedp.Click(`[data-opens="new-token"]`), chromedp.SendKeys("#token-name", "grafana"), chromedp.SendKeys("#token-tenants", "acme\nb"), chromedp.SendKeys("#token-expires", "90d"),
		chromedp.Click("#create-token button.primary"), chromedp.WaitVisible("#minted"))
	var token string
	b.run(chromedp.Value("#minted-text", &token))
	require.NotEmpty(t, token)
	tokens := w.call(http.MethodGet, "/tokens", nil)["tokens"].([]any)
	require.Len(t, tokens, 1)
	require.Equal(t, []any{"acme", "b"}, tokens[0].(map[string]any)["tenants"])
	b.awaits(`document.querySelector("[data-part=tokens] tbody") !== null`)
	b.looks("access", w.url+"/ui/access")
	_, text := w.page("/access")
	require.NotContains(t, text, token)
	b.quiet()
}

func TestATokenIsRevoked(t *testing.T) {
	w, b := browse(t)
	token := w.call(http.MethodPost, "/tokens", map[string]any{"name": "grafana", "role": "viewer"})
	b.size(1440, 900, false)
	b.visit(w.url + "/ui/access")
	b.run(chromedp.Click(`form[data-call$="/revoke"] button`), chromedp.Click("#confirm-yes"))
	b.awaits(`document.querySelector("[data-part=tokens] .badge").textContent.includes("revoked")`)
	tokens := w.call(http.MethodGet, "/tokens", nil)["tokens"].([]any)
	require.Equal(t, token["id"], tokens[0].(map[string]any)["id"])
	require.Equal(t, "revoked", tokens[0].(map[string]any)["state"])
	b.quiet()
}

func TestNodesThatOnlyHangOnOthersAreNoBusinessOfPeople(t *testing.T) {
	api := answers{
		"/api/v1/tasks":   `{"tasks": []}`,
		"/api/v1/streams": `{"streams": []}`,
		"/api/v1/flows":   `{"flows": [{"id": "-/f", "counts": {"PENDING": 4}}]}`,
		"/api/v1/flows/-/f/nodes": `{"nodes": [{"node": "pay", "status": "PENDING", "error_info": "no money"}, {"node": "ship", "status": "PENDING", "after": ["pay"], "reason": "blocked by pay"},
			{"node": "mail", "status": "PENDING", "after": ["ship"]}, {"node": "approve", "status": "PENDING", "ask": {"title": "Approve?"}}]}`,
	}
	text := api.shown(t, "/waiting")
	require.Contains(t, text, `data-call="POST /flows/-/f/nodes/pay/retry" data-confirm="This node and the 2 behind it begin new lives."`)
	require.Contains(t, text, `data-call="POST /flows/-/f/nodes/pay/resolve"`)
	require.Contains(t, text, `href="/ui/flows/-/f?node=approve">Answer`)
	for _, hangs := range []string{"ship", "mail"} {
		require.NotContains(t, text, "/nodes/"+hangs+"/")
	}
	file := api.shown(t, "/download/waiting.csv")
	require.Equal(t, 3, strings.Count(file, "\n"), file)
}

func TestTheFilesOfWhatWaitsAndOfWhatIsHeldHaveAllOfIt(t *testing.T) {
	api := answers{
		"/api/v1/streams?limit=1000&status=PENDING":              `{"streams": [{"stream": "s/1", "node": "n"}], "next": "a"}`,
		"/api/v1/streams?limit=1000&page_token=a&status=PENDING": `{"streams": [{"stream": "s/2", "node": "n"}]}`,
		"/api/v1/flows?limit=1000&page_token=b&status=PENDING":   `{"flows": [{"id": "-/last", "counts": {"PENDING": 1}}, {"id": "-/large", "counts": {"PENDING": 201}, "reason": "its nodes wait"}]}`,
		"/api/v1/flows/-/last/nodes?limit=1000&outputs=false":    `{"nodes": [{"node": "approve", "status": "PENDING"}]}`,
		"/api/v1/executions?limit=1000&worker=w":                 `{"executions": [{"task_id": "-/mail/a"}], "complete": true}`,
		"/api/v1/executions?limit=1000&worker=busy":              `{"executions": [{"task_id": "-/mail/a"}], "complete": false}`,
	}
	var flows []string
	for i := range 12 {
		flows = append(flows, fmt.Sprintf(`{"id": "-/f%d", "counts": {"PENDING": 1}}`, i))
		api[fmt.Sprintf("/api/v1/flows/-/f%d/nodes", i)] = fmt.Sprintf(`{"nodes": [{"node": "n%d", "status": "PENDING"}]}`, i)
	}
	api["/api/v1/flows?limit=1000&status=PENDING"] = `{"flows": [` + strings.Join(flows, ",") + `], "next": "b"}`
	file := api.shown(t, "/download/waiting.csv")
	for _, row := range []string{"flow,'-/f0,n0,", "flow,'-/f11,n11,", "flow,'-/last,approve,", "flow,'-/large,,,its nodes wait", "stream,s/1,n,", "stream,s/2,n,"} {
		require.Contains(t, file, "\n"+row)
	}
	require.Equal(t, 1+12+2+2, strings.Count(file, "\n"))

	require.Contains(t, api.shown(t, "/download/held.csv?of=w"), "-/mail/a")
	status, text := api.page(t, "/download/held.csv?of=busy")
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, text, "more than a file can have")
	require.NotContains(t, text, "-/mail/a")
}
