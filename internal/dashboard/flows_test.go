package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow"
)

// engine runs flows until the test ends.
func (w *world) engine() {
	w.t.Helper()
	f, err := flow.New(flow.Config{Database: w.db})
	require.NoError(w.t, err)
	w.runs(f.Run)
}

func node(id, typ string, after ...string) map[string]any {
	n := map[string]any{"id": id, "type": typ}
	if len(after) > 0 {
		n["after"] = after
	}
	return n
}

// seedFlow starts a flow that succeeds, fails, runs, waits and asks.
func (w *world) seedFlow() {
	w.t.Helper()
	w.work()
	w.engine()
	fails := node("notify", "mail", "pay")
	fails["options"] = map[string]any{"retry": map[string]any{"strategy": "none"}}
	ask := map[string]any{"id": "approve", "after": []string{"stock"}, "ask": map[string]any{"title": "Ship the order <b>today</b>?", "fields": []any{
		map[string]any{"name": "carrier", "kind": "choice", "choices": []string{"post", "bike"}, "required": true},
		map[string]any{"name": "parcels", "kind": "number", "required": true, "help": "how many there are"},
		map[string]any{"name": "insured", "kind": "bool"},
	}}}
	w.call(http.MethodPost, "/flows", map[string]any{"key": "order/7", "description": "an order of <i>two</i> books", "nodes": []any{
		node("pay", "report"), node("stock", "report", "pay"), fails, node("watch", "crawl", "pay"), ask, node("ship", "report", "approve", "notify"), node("done", "report", "ship", "watch"),
	}})
	w.call(http.MethodPost, "/flows", map[string]any{"key": "nightly", "nodes": []any{node("load", "report"), node("check", "report", "load")}})
	w.await("/flows/-/nightly", hasStatus("FINISH"))
	for name, status := range map[string]string{"notify": "PENDING", "approve": "PENDING", "watch": "RUNNING"} {
		w.awaitNode("/flows/-/order%2F7", name, status)
	}
}

// awaitNode waits until a node of a flow or a stream has a status.
func (w *world) awaitNode(path, name, status string) map[string]any {
	w.t.Helper()
	var found map[string]any
	w.await(path+"/nodes", func(doc map[string]any) bool {
		nodes, _ := doc["nodes"].([]any)
		for _, n := range nodes {
			if found, _ = n.(map[string]any); found["node"] == name && found["status"] == status {
				return true
			}
		}
		return false
	})
	return found
}

func TestTheFlowPagesLookRightAndTheirActionsWork(t *testing.T) {
	w, b := browse(t)
	b.visit(w.url + "/ui/flows")
	require.Contains(t, b.text("[data-part=flows]"), "There are none yet")
	w.seedFlow()
	const page, order = "/ui/flows/-/order%2F7", "/flows/-/order%2F7"
	b.looks("flows", w.url+"/ui/flows")
	b.looks("flow", w.url+page)
	b.looks("node", w.url+page+"?node=approve")

	b.visit(w.url + page)
	b.awaits(`document.querySelectorAll(".picture a").length === 7`)
	b.run(chromedp.Click(`[data-zoom=in]`), chromedp.SendKeys("#find-node", "notif"))
	b.awaits(`document.querySelector(".picture .found").dataset.node === "notify"`)
	b.run(chromedp.Click(`.picture a[data-of=notify]`, chromedp.NodeVisible), chromedp.WaitVisible(`[data-opens=resolve]`), chromedp.Click(`[data-opens=resolve]`),
		chromedp.SendKeys("#resolve-remark", "told them by phone"), chromedp.Click("#resolve button.primary"))
	w.awaitNode(order, "notify", "SUCCESS")
	b.awaits(`document.querySelector("[data-part=head] .badge").textContent.includes("SUCCESS")`)

	b.visit(w.url + page + "?node=approve")
	b.run(chromedp.SetValue("#answer-carrier", "bike"), chromedp.SendKeys("#answer-parcels", "2"), chromedp.SetValue("#answer-insured", "false"), chromedp.Click("[data-part=ask] button.primary"))
	answered := w.awaitNode(order, "approve", "SUCCESS")
	require.Equal(t, map[string]any{"carrier": "bike", "parcels": 2.0, "insured": false}, answered["output"])
	w.awaitNode(order, "ship", "SUCCESS")

	b.visit(w.url + page)
	b.run(chromedp.Click("[data-opens=cancel]"), chromedp.SendKeys("#cancel-remark", "the shop is closed"), chromedp.Click("#cancel button.danger"))
	w.await(order, func(doc map[string]any) bool { return doc["reason"] == "the shop is closed" })

	b.visit(w.url + "/ui/flows/-/nightly?node=load")
	b.run(chromedp.Click("form[data-call$=retry] button"), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	w.await("/flows/-/nightly/nodes", func(doc map[string]any) bool {
		nodes, _ := doc["nodes"].([]any)
		first, _ := nodes[0].(map[string]any)
		return first["life"] == 1.0 && first["status"] == "SUCCESS"
	})
	b.quiet()
}

// A definition is checked and drawn before it is started. Everybody may look; operators start it.
func TestAFlowIsDrawnBeforeItIsStarted(t *testing.T) {
	w, b := browse(t)
	w.work()
	w.engine()
	page := w.url + "/ui/flows/new"
	b.looks("flow-new", page)
	b.visit(page)
	b.awaits(`document.querySelectorAll(".picture .node").length === 4`)
	b.fill("#source", "nodes:\n  - {id: load, type: a b}\n  - {id: check, type: report, after: [lod], priority: 12}\n")
	b.run(chromedp.Click("#editor-preview"))
	errs := b.text("#editor-errors")
	require.Regexp(t, `(?s)Node load\n.*type.*a b.*Node check\n.*priority.*12`, errs)
	require.Contains(t, errs, "is lod")
	b.heard("status 422")
	b.run(chromedp.Click("form#editor button.primary"), chromedp.WaitVisible("#editor-errors li li"))
	b.heard("status 422")

	const order = `description: an order of <i>two</i> books
nodes:
  - {id: pay, type: report, args: {amount: {$arg: amount}}}
  - {id: stock, type: report, after: [pay]}
  - {id: notify, type: report, after: [pay], when: {pay: {output.pages: {$gt: 3}}}}
  - {id: approve, after: [stock], ask: "Ship the order <b>today</b>?"}
  - {id: settle, after: [notify], wait: 10m}
  - {id: parcels, type: report, after: [stock], each: {items: [{id: 1}, {id: 2}]}, args: {n: {$item: id}}}
  - {id: done, type: report, after: [approve, settle, parcels]}
`
	b.visit(page)
	b.fill("#source", order)
	b.fill("#f-key", "order/8")
	b.awaits(`document.getElementById("source").value.includes("key: order/8")`)
	b.run(chromedp.Click("#editor-preview"))
	b.awaits(`document.querySelectorAll(".picture .node").length === 7`)
	require.Contains(t, b.text("#drawn"), "7 nodes, nothing is wrong")
	status, _ := w.do(http.MethodGet, "/api/v1/flows/-/order%2F8", nil)
	require.Equal(t, http.StatusNotFound, status, "drawn, and not started")
	b.accessible()
	b.size(1440, 900, false)
	b.picture("flow-new")
	b.fill("#f-args", `{"amount": 12345678901234567890}`)
	require.Contains(t, b.text("#source-error"), "16 digits")
	b.run(chromedp.Click("form#editor button.primary")) // it starts nothing
	require.Contains(t, b.text("#source-error"), "16 digits")
	b.fill("#f-args", `{"amount": 12}`)
	b.awaits(`document.getElementById("source").value.includes("amount: 12")`)
	b.run(chromedp.Click("form#editor button.primary"))
	b.awaits(`location.pathname === "/ui/flows/-/order%2F8"`)
	w.awaitNode("/flows/-/order%2F8", "approve", "PENDING")

	b.quiet()
}

// When the nodes waited, ran and ended: as a picture, and in the table below it.
func TestAFlowHasAGanttChart(t *testing.T) {
	w, b := browse(t)
	w.seedFlow()
	const page = "/ui/flows/-/order%2F7?view=gantt"
	b.looks("gantt", w.url+page)
	b.visit(w.url + page)
	b.awaits(`document.querySelectorAll(".picture a").length === 7`)
	require.Contains(t, b.text("[data-part=nodes] tbody tr:first-child"), "pay")
	b.awaits(`document.querySelector('.picture a[data-of="pay"] rect.span')`)
	require.Contains(t, b.text("[data-part=nodes] thead"), "Took")
	b.run(chromedp.Click(`[data-zoom=in]`), chromedp.SendKeys("#find-node", "notif"))
	b.awaits(`document.querySelector(".picture .found").dataset.node === "notify"`)
	w.call(http.MethodPost, "/flows/-/order%2F7/nodes/notify/resolve", map[string]any{"status": "SUCCESS"})
	b.awaits(`document.querySelector('.picture a[data-of="notify"] .is-success')`) // it is live
	b.visit(w.url + "/ui/flows/-/nightly?view=gantt")
	b.awaits(`document.querySelectorAll(".picture rect.span").length === 2`)
	b.quiet()
}
