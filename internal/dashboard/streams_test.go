package dashboard_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestTheStreamPagesLookRightAndTheirActionsWork(t *testing.T) {
	w, b := browse(t)
	b.visit(w.url + "/ui/streams?all=true")
	require.Contains(t, b.text("[data-part=streams]"), "There are none yet")
	w.work()
	w.engine()
	fails := node("tell", "mail")
	fails["options"] = map[string]any{"retry": map[string]any{"strategy": "none"}}
	const page, stream = "/ui/streams/orders/17%2Fa", "/streams/orders/17%2Fa"
	w.call(http.MethodPost, stream+"/nodes", map[string]any{"nodes": []any{node("pay", "report"), fails, node("pack", "report"), node("ship", "report")}})
	w.call(http.MethodPost, "/streams/orders/18/nodes", map[string]any{"nodes": []any{node("pay", "report"), node("look", "crawl"), node("end", "report")}})
	w.awaitNode(stream, "tell", "PENDING")
	w.awaitNode("/streams/orders/18", "look", "RUNNING")
	b.looks("streams", w.url+"/ui/streams")
	require.Regexp(t, `orders/17/a\s.*\t0.2\t0.017`, b.text("[data-part=streams] tbody"))
	b.looks("stream", w.url+page)
	require.Contains(t, b.text("[data-part=head]"), "0.2\nnodes ended a minute, over five minutes; 0.017 over an hour. At the speed of the last five minutes, the backlog lasts 10 m")

	b.visit(w.url + page + "?node=tell")
	b.run(chromedp.Click("form[data-call$=retry] button"), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	w.await(stream+"/nodes", func(doc map[string]any) bool {
		nodes, _ := doc["nodes"].([]any)
		tell, _ := nodes[1].(map[string]any)
		return tell["life"] == 1.0 && tell["status"] == "PENDING"
	})
	b.visit(w.url + page + "?node=tell")
	b.run(chromedp.Click("[data-opens=resolve]"), chromedp.SendKeys("#resolve-remark", "told them by phone"), chromedp.Click("#resolve button.primary"))
	w.awaitNode(stream, "ship", "SUCCESS")

	b.visit(w.url + "/ui/streams/orders/18")
	b.run(chromedp.Click("[data-opens=cancel]"), chromedp.SendKeys("#cancel-remark", "the shop is closed"), chromedp.Click("#cancel button.danger"))
	w.await("/streams/orders/18", func(doc map[string]any) bool { return doc["closed"] == true })
	b.awaits(`document.querySelector("[data-part=head] .badge").textContent.includes("closed")`)
	b.run(chromedp.Click("form[data-call$=open] button"))
	w.await("/streams/orders/18", func(doc map[string]any) bool { return doc["closed"] == false })
	b.quiet()
}

func TestThePageOfANodeThatIsNotLinkedYetHasItsStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var nodes []any
	for i := range 301 {
		nodes = append(nodes, node(fmt.Sprint("n", i), "report"))
	}
	w.call(http.MethodPost, "/streams/orders/long/nodes", map[string]any{"nodes": nodes})
	status, text := w.page("/streams/orders/long?node=n300")
	require.Equal(t, http.StatusOK, status, text)
	require.Regexp(t, `<h1 class="mono">n300</h1><span class="badge [^"]*"><span aria-hidden="true">[^<]*</span> INIT</span>`, text)
	require.Contains(t, text, "Nodes before it: 300.")
}
