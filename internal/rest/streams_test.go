package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

const streamsAt = "/api/v1/streams"

func TestNodesAreAppendedToAStreamAndRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const stream = streamsAt + "/orders/17%2Fa"
	w.fails(http.StatusNotFound, "GET", stream, "")
	decide := w.engine()
	const two = `{"nodes": [{"id": "a", "type": "t", "args": {"n": 1}}, {"id": "b", "type": "t", "args": {"fail": true}, "on_failure": "end"}]}`
	for range 2 {
		require.Equal(t, map[string]any{"stream": "orders/17/a", "nodes": []any{"a", "b"}}, w.ok("POST", stream+"/nodes", two), "a node of an id is stored once")
	}
	keyed := w.as("Idempotency-Key", "request-1")
	for range 2 {
		require.Equal(t, []any{"request-1-0", "own"}, keyed.ok("POST", stream+"/nodes", `{"nodes": [{"type": "t"}, {"id": "own", "type": "t"}]}`)["nodes"])
	}
	w.until(decide, stream, "b", "WAIT")
	require.Equal(t, "READY", w.statuses(stream)["a"])
	var got map[string]any
	require.Eventually(t, func() bool { // a node that is being linked counts as both for a moment
		got = w.ok("GET", stream, "")
		return got["wait"].(float64)+got["init"].(float64) == 3
	}, testdb.Patience, 5*time.Millisecond)
	require.Equal(t, "orders/17/a", got["stream"])
	require.Equal(t, "a READY", fmt.Sprint(got["node"], " ", got["node_status"]))
	w.until(decide, stream, "own", "WAIT")
	got = w.ok("GET", stream, "")
	require.Equal(t, "a own", fmt.Sprint(got["first"], " ", got["last"]))
	require.Contains(t, fmt.Sprint(w.ok("GET", stream+"/nodes/b/explain", "")["explanation"]), "a")

	w.until(decide, stream, "a", "SUCCESS", "t")
	w.until(decide, stream, "b", "ERROR", "t")
	got = w.ok("GET", stream, "")
	require.Equal(t, true, got["closed"], "the failure of b has closed it")
	require.Equal(t, "2 2", fmt.Sprint(got["ended_5m"], " ", got["ended_1h"]))
	listed, _ := w.ok("GET", streamsAt, "")["streams"].([]any)
	require.Equal(t, []any{got}, listed)
	require.Contains(t, w.fails(http.StatusConflict, "POST", stream+"/nodes", `{"nodes": [{"type": "t"}]}`)[""], "closed")
	require.Equal(t, "RUNNING", w.ok("POST", stream+"/open", "")["status"])
	require.Equal(t, "RUNNING", w.ok("POST", stream+"/open", "")["status"], "to open it again changes nothing")
	w.until(decide, stream, "request-1-0", "READY")
	require.Equal(t, "too many", w.ok("POST", stream+"/cancel", `{"remark": "too many"}`)["reason"])
	require.Equal(t, true, w.ok("GET", stream, "")["closed"])
}

func TestStreamsThatWaitForAPersonAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	decide := w.engine()
	w.ok("POST", streamsAt+"/s/runs/nodes", `{"nodes": [{"type": "later"}]}`)
	for _, group := range []string{"a", "b", "c"} {
		stream := streamsAt + "/s/" + group
		w.ok("POST", stream+"/nodes", `{"nodes": [{"id": "n", "type": "t", "args": {"fail": true}}, {"id": "m", "type": "t"}]}`)
		w.until(decide, stream, "n", "PENDING", "t")
	}
	var seen []any
	for next := ""; len(seen) < 4; {
		page := w.ok("GET", streamsAt+"?status=PENDING&limit=1&page_token="+next, "")
		listed, _ := page["streams"].([]any)
		require.Len(t, listed, 1)
		seen = append(seen, listed[0].(map[string]any)["stream"])
		if page["next"] == nil {
			break
		}
		next = page["next"].(string)
	}
	// The engine's reading of the clock may change between two streams, so what is stored says which came last.
	stored, err := w.db.Collection("flows").Find(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "s/runs"}}}},
		options.Find().SetSort(bson.D{{Key: "updated_at", Value: -1}, {Key: "_id", Value: -1}}))
	require.NoError(t, err)
	var last []struct {
		ID string `bson:"_id"`
	}
	require.NoError(t, stored.All(t.Context(), &last))
	var want []any
	for _, stream := range last {
		want = append(want, stream.ID)
	}
	require.ElementsMatch(t, []any{"s/a", "s/b", "s/c"}, want)
	require.Equal(t, want, seen, "the last one to change first")
}

func TestAPendingNodeOfAStreamIsResolvedOrRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const stream = streamsAt + "/s/g"
	decide := w.engine()
	w.ok("POST", stream+"/nodes", `{"nodes": [{"id": "a", "type": "t", "args": {"fail": true}}, {"id": "b", "type": "t"}]}`)
	w.until(decide, stream, "a", "PENDING", "t")
	got := w.ok("GET", stream, "")
	require.Equal(t, "a PENDING", fmt.Sprint(got["node"], " ", got["node_status"]))
	require.Equal(t, []any{got}, w.ok("GET", streamsAt+"?status=PENDING", "")["streams"])
	require.Equal(t, "RUNNING", w.ok("POST", stream+"/nodes/a/retry", "")["status"])
	require.Empty(t, w.ok("GET", streamsAt+"?status=PENDING", "")["streams"])
	require.Len(t, w.ok("GET", streamsAt+"?status=RUNNING", "")["streams"], 1)
	nodes := w.ok("GET", stream+"/nodes", "")
	require.EqualValues(t, 1, at(nodes, "nodes.0.life"))
	require.EqualValues(t, 2, at(nodes, "nodes.1.position"))
	w.until(decide, stream, "a", "PENDING", "t")
	w.ok("POST", stream+"/nodes/a/resolve", `{"status": "SUCCESS"}`)
	w.until(decide, stream, "b", "SUCCESS", "t")
	require.Contains(t, w.fails(http.StatusConflict, "POST", stream+"/nodes/a/resolve", `{"status": "SUCCESS"}`)[""], "only PENDING can be resolved")
}

func TestANodeIsExplainedBeforeItIsLinkedAndAfterItHasLeftItsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const long, stream = streamsAt + "/s/long", streamsAt + "/s/g"
	w.ok("POST", long+"/nodes", `{"nodes": [`+strings.Repeat(`{"type": "t"}, `, 300)+`{"id": "last", "type": "t"}]}`)
	explained := w.ok("GET", long+"/nodes/last/explain", "")
	require.Equal(t, "INIT", explained["status"])
	require.Nil(t, explained["task_id"], "it has none yet")
	require.Contains(t, fmt.Sprint(explained["explanation"]), "Nodes before it: 300.")

	decide := w.engine()
	w.ok("POST", stream+"/nodes", `{"nodes": [{"id": "a", "type": "t"}, {"id": "b", "type": "t"}]}`)
	w.until(decide, stream, "b", "SUCCESS", "t")
	w.ok("POST", stream+"/nodes", `{"nodes": [{"id": "c", "type": "t"}, {"id": "d", "type": "t"}]}`)
	w.until(decide, stream, "a", "") // it has left
	got := w.ok("GET", stream, "")
	require.Equal(t, "a", got["first"], "of the chain, not of what is left of it")
	require.Equal(t, "d", got["last"])
	explained = w.ok("GET", stream+"/nodes/a/explain", "")
	require.Equal(t, "SUCCESS", explained["status"])
	require.Equal(t, "-/t/stream:s/g:a", explained["task_id"])
	require.Contains(t, fmt.Sprint(explained["explanation"]), "It ended as SUCCESS at")

	require.Contains(t, w.fails(http.StatusNotFound, "GET", stream+"/nodes/none/explain", "")[""], `no such node: "none" of the flow s/g`)
	require.Contains(t, w.fails(http.StatusNotFound, "GET", flowsAt+"/s/g/nodes/a/explain", "")[""], "no such flow", "a stream is none")
}

func TestWhatIsWrongWithAnAppendIsToldAndNothingIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const stream = streamsAt + "/s/g"
	errs := w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": "t"}, {"id": "a b", "type": "", "after": ["x"], "wait": "5m", "priority": 12}, {"id": "c", "type": "t"}, {"id": "c", "type": "t"}]}`)
	for _, field := range []string{"id", "type", "after", "wait", "priority"} {
		require.Contains(t, errs, "body.nodes[1]."+field)
	}
	require.Contains(t, errs["body.nodes[3].id"], "nodes[2]")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": "exec", "args": {"argv": []}}]}`), "body.nodes[0].args.argv")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": []}`), "body.nodes")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": "t"`+strings.Repeat(`}, {"type": "t"`, 1000)+`}]}`), "body.nodes")
	require.Contains(t, w.as("Idempotency-Key", "a b").fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": "t"}]}`), "header.Idempotency-Key")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", streamsAt+"/a%2Fb/g/nodes", `{"nodes": [{"type": "t"}]}`), "path.scene")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", streamsAt+"/s/"+strings.Repeat("g", 101)+"/nodes", `{"nodes": [{"type": "t"}]}`), "path.group")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", streamsAt+"/s/g%00/nodes", `{"nodes": [{"type": "t"}]}`), "path.group")
	w.fails(http.StatusNotFound, "GET", stream, "")
	w.fails(http.StatusNotFound, "POST", stream+"/open", "")
	w.fails(http.StatusNotFound, "POST", stream+"/nodes/a/retry", "")
}

func TestStreamsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	decide := w.engine()
	for i := range 5 {
		w.ok("POST", fmt.Sprintf("%s/s/g%d/nodes", streamsAt, i), `{"nodes": [{"type": "t"}, {"type": "t"}]}`)
	}
	decide()
	w.ok("POST", streamsAt+"/s/idle/nodes", `{"nodes": [{"id": "a", "type": "u"}]}`)
	w.until(decide, streamsAt+"/s/idle", "a", "SUCCESS", "u")
	list := func(query string) (ids []string, next string) {
		body := w.ok("GET", streamsAt+"?"+query, "")
		for _, f := range body["streams"].([]any) {
			ids = append(ids, at(f, "stream").(string))
		}
		next, _ = body["next"].(string)
		return ids, next
	}
	busy, next := list("")
	require.Equal(t, []string{"s/g0", "s/g1", "s/g2", "s/g3", "s/g4"}, busy)
	require.Empty(t, next)
	all, _ := list("all=true")
	require.Equal(t, append(busy, "s/idle"), all)
	var paged []string
	for token, pages := "", 1; ; pages++ {
		page, next := list("limit=2&page_token=" + url.QueryEscape(token))
		paged = append(paged, page...)
		if token = next; token == "" {
			require.Equal(t, 3, pages)
			break
		}
	}
	require.Equal(t, busy, paged)
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", streamsAt+"?page_token=x", ""), "page_token")
}

func TestARequestSetsWhoIsCalledAboutAStream(t *testing.T) {
	w := newWorld(t)
	const stream = streamsAt + "/s/g"
	const calls = `"callback": {"error": {"url": "http://127.0.0.1:1/alarm"}}`
	errs := w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": ""}], `+calls+`}`)
	require.Contains(t, errs, "body.nodes[0].type")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": "t"}], "callback": {"error": {"url": "nowhere"}}}`), "body.callback.error.url")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", stream+"/nodes", `{"nodes": [{"type": "t"}], "ext": 1}`), "body.ext")
	w.fails(http.StatusNotFound, "POST", stream+"/open", `{`+calls+`}`) // nothing has made the stream

	flows, err := flow.New(flow.Config{Database: w.db})
	require.NoError(t, err)
	callback := func() any {
		doc, err := flows.Get(t.Context(), "s/g")
		require.NoError(t, err)
		if doc.Callback == nil {
			return nil
		}
		return doc.Callback.Error.URL + " " + doc.Ext.String()
	}
	w.ok("POST", stream+"/nodes", `{"nodes": [{"type": "t"}], `+calls+`, "ext": {"line": 7}}`)
	require.Equal(t, `http://127.0.0.1:1/alarm {"line": {"$numberLong":"7"}}`, callback())
	w.ok("POST", stream+"/nodes", `{"nodes": [{"type": "t"}]}`)
	require.NotNil(t, callback())
	w.ok("POST", stream+"/open", `{"callback": {}}`)
	require.Nil(t, callback())
}

func TestARefusedAppendLeavesTheCallbackOfItsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const stream = streamsAt + "/s/g"
	const body = `{"nodes": [{"type": "t"}], "callback": {"error": {"url": "http://127.0.0.1:1/%s"}}}`
	w.ok("POST", stream+"/nodes", fmt.Sprintf(body, "first"))
	w.ok("POST", stream+"/cancel", "")
	require.Contains(t, w.fails(http.StatusConflict, "POST", stream+"/nodes", fmt.Sprintf(body, "second"))[""], "the stream is closed")
	flows, err := flow.New(flow.Config{Database: w.db})
	require.NoError(t, err)
	doc, err := flows.Get(t.Context(), "s/g")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:1/first", doc.Callback.Error.URL)
	require.Equal(t, "refused", at(w.audit("?operation=append-nodes")[0], "outcome"))
}

// Somebody closes the stream between the two writes of the request.
func TestTheAuditDoesNotCallRefusedWhatWasDoneInPart(t *testing.T) {
	t.Parallel()
	px := testdb.Behind(t)
	db := testdb.Through(t, px)
	w := newWorld(t, func(c *rest.Config) { c.Database = db })
	const stream = streamsAt + "/s/g"
	w.ok("POST", stream+"/nodes", `{"nodes": [{"type": "t"}]}`)
	trap := px.Set(proxy.Rule{Command: "update", Collection: "flows", Contains: "/alarm", Do: proxy.HoldAfter})
	answered := make(chan answer, 1)
	go func() {
		answered <- w.do("POST", stream+"/nodes", `{"nodes": [{"type": "t"}], "callback": {"error": {"url": "http://127.0.0.1:1/alarm"}}}`)
	}()
	<-trap.Hit()
	flows, err := flow.New(flow.Config{Database: db})
	require.NoError(t, err)
	_, err = flows.Cancel(t.Context(), "s/g", "enough")
	require.NoError(t, err)
	trap.Release()
	require.Equal(t, http.StatusConflict, (<-answered).status)
	doc, err := flows.Get(t.Context(), "s/g")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:1/alarm", doc.Callback.Error.URL)
	e := w.audit("?operation=append-nodes")[0]
	require.Equal(t, "failed", at(e, "outcome"))
	require.EqualValues(t, http.StatusConflict, at(e, "status"))
	require.Contains(t, at(e, "reason"), "the stream is closed")
}
