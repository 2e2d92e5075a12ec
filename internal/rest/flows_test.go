package rest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

const flowsAt = "/api/v1/flows"

// engine is an engine of flows for the world's database. decide has it do what it can do now.
func (w *world) engine() (decide func()) {
	w.t.Helper()
	flows, err := flow.New(flow.Config{Database: w.db})
	require.NoError(w.t, err)
	return func() {
		w.t.Helper()
		for worked := true; worked; {
			_, worked, err = flows.Drain(w.t.Context(), time.Time{})
			require.NoError(w.t, err)
		}
	}
}

// pulls has a worker run all due tasks of the types that it finds; n of their arguments, plus one, is n of their
// outputs.
func (w *world) pulls(types ...string) {
	w.t.Helper()
	wanted, err := json.Marshal(types)
	require.NoError(w.t, err)
	for len(types) > 0 {
		tasks := w.ok("POST", "/api/v1/pull/fetch", fmt.Sprintf(`{"worker_id": "w", "types": %s, "max": 100}`, wanted))["tasks"].([]any)
		for _, task := range tasks {
			if at(task, "args.fail") == true {
				w.ok("POST", "/api/v1/pull/fail", fmt.Sprintf(`{"handle": %q, "reason": "no stock", "fatal": true}`, at(task, "handle")))
				continue
			}
			n, _ := at(task, "args.n").(float64)
			w.ok("POST", "/api/v1/pull/complete", fmt.Sprintf(`{"handle": %q, "result": {"n": %v}}`, at(task, "handle"), n+1))
		}
		if len(tasks) == 0 {
			return
		}
	}
}

// statuses are those of the nodes of a flow or a stream.
func (w *world) statuses(path string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, n := range w.ok("GET", path+"/nodes", "")["nodes"].([]any) {
		out[at(n, "node").(string)] = at(n, "status").(string)
	}
	return out
}

// until has an engine decide, and a worker run tasks of the types, until a node of a flow or a stream has
// a status. A worker looks for tasks only now and then, and the server links nodes in the background.
func (w *world) until(decide func(), path, node, status string, types ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.pulls(types...)
		decide()
		return w.statuses(path)[node] == status
	}, testdb.Patience, 5*time.Millisecond, "%s of %s becomes %s", node, path, status)
}

const diamond = `{"key": "order/7", "args": {"n": 10}, "description": "an order", "nodes": [
	{"id": "a", "type": "t", "args": {"n": {"$arg": "n"}}},
	{"id": "b", "type": "t", "after": ["a"], "args": {"n": {"$output": "a.n"}}},
	{"id": "c", "type": "t", "after": ["a"], "args": {"fail": true}},
	{"id": "d", "type": "t", "after": ["b", "c"], "args": {"n": {"$output": "b.n"}}}]}`

func TestAFlowIsDrivenToItsEndThroughTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const order = flowsAt + "/-/order%2F7"
	decide := w.engine()
	first := w.do("POST", flowsAt, diamond)
	require.Equal(t, http.StatusCreated, first.status, first.text)
	require.Equal(t, "-/order/7", first.body["id"])
	require.Equal(t, "RUNNING", first.body["status"])
	require.Equal(t, `"1"`, first.header.Get("ETag"))
	again := w.do("POST", flowsAt, `{"key": "order/7", "nodes": [{"id": "x", "type": "t"}]}`)
	require.Equal(t, http.StatusOK, again.status, "the key has a flow")
	require.Equal(t, first.body, again.body)

	got := w.do("GET", order, "")
	require.Equal(t, first.body, got.body)
	require.Equal(t, `"1"`, got.header.Get("ETag"))
	require.Equal(t, map[string]any{"READY": 1.0, "WAIT": 3.0}, got.body["counts"])

	w.until(decide, order, "b", "SUCCESS", "t")
	w.until(decide, order, "c", "PENDING", "t")
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS", "c": "PENDING", "d": "PENDING"}, w.statuses(order))
	nodes := w.ok("GET", order+"/nodes", "")
	require.EqualValues(t, 12, at(nodes, "nodes.1.output.n"))
	require.Equal(t, "no stock", at(nodes, "nodes.2.error_info"))
	require.Equal(t, "-/t/flow:order/7:c", at(nodes, "nodes.2.task_id"))
	require.Equal(t, "PENDING", w.ok("GET", order+"/wait", "")["status"], "it waits for a person, who must be told")

	explained := w.ok("GET", order+"/nodes/d/explain", "")
	require.Equal(t, "PENDING", explained["status"])
	require.Contains(t, fmt.Sprint(explained["explanation"]), "blocked by c")

	waited := make(chan answer, 1)
	resolved := w.ok("POST", order+"/nodes/c/resolve", `{"status": "SUCCESS", "remark": "found some"}`)
	require.Equal(t, "RUNNING", resolved["status"])
	go func() { waited <- w.do("GET", order+"/wait?timeout_ms=50000", "") }()
	w.until(decide, order, "d", "SUCCESS", "t")
	end := testdb.Receive(t, waited)
	require.Equal(t, "FINISH", end.body["status"], end.text)
	require.NotEmpty(t, end.body["ended_at"])
	require.NotEqual(t, `"1"`, end.header.Get("ETag"))

	require.Equal(t, "RUNNING", w.ok("POST", order+"/nodes/b/retry", "")["status"])
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "READY", "c": "SUCCESS", "d": "WAIT"}, w.statuses(order))
	require.Contains(t, w.fails(http.StatusConflict, "POST", order+"/nodes/b/retry", "")[""], "it runs, or is about to")
	require.Equal(t, "RUNNING", w.ok("GET", order+"/wait?timeout_ms=0", "")["status"], "as it is")
	cancelled := w.ok("POST", order+"/cancel", `{"remark": "no longer needed"}`)
	require.Equal(t, "no longer needed", cancelled["reason"])
	require.Eventually(t, func() bool { // the engine may hear of the end of b's task later
		decide()
		return w.ok("GET", order, "")["status"] == "FINISH"
	}, testdb.Patience, time.Millisecond)
	require.Equal(t, "FINISH", w.ok("POST", order+"/cancel", "")["status"], "to cancel it again changes nothing")
	require.Contains(t, w.fails(http.StatusConflict, "POST", order+"/nodes/b/resolve", `{"status": "ERROR"}`)[""], "it is ERROR; only PENDING can be resolved")
}

func TestAPendingNodeOfAFlowThatIsOverIsResolvedAndNothingStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const at = flowsAt + "/-/k"
	w.ok("POST", flowsAt, `{"key": "k", "nodes": [{"id": "a", "type": "t"},
		{"id": "b", "type": "t", "after": ["a"], "args": {"fail": true}, "on_failure": "continue", "options": {"need_manual": true}},
		{"id": "c", "type": "t", "after": ["a"]}, {"id": "d", "type": "t", "after": ["b", "c"], "join": {"strategy": "at_least", "n": 1}}]}`)
	decide := w.engine()
	w.until(decide, at, "d", "SUCCESS", "t")
	w.until(decide, at, "b", "PENDING", "t")
	over := w.ok("GET", at, "")
	require.Equal(t, "FINISH", over["status"])
	resolved := w.ok("POST", at+"/nodes/b/resolve", `{"status": "ERROR", "remark": "by hand"}`)
	require.Equal(t, "FINISH", resolved["status"])
	require.Equal(t, over["ended_at"], resolved["ended_at"])
	require.Equal(t, map[string]string{"a": "SUCCESS", "b": "ERROR", "c": "SUCCESS", "d": "SUCCESS"}, w.statuses(at))
	require.Equal(t, "ManuallyProcessed", w.ok("GET", "/api/v1/tasks/-/t/flow:k:b", "")["status"])
	require.Contains(t, w.fails(http.StatusConflict, "POST", at+"/nodes/b/resolve", `{"status": "SUCCESS"}`)[""], "only PENDING can be resolved")
}

func TestAnIdempotencyKeyIsTheKeyOfAFlowWithoutOne(t *testing.T) {
	w := newWorld(t).as("Idempotency-Key", "request-1")
	const small = `{"nodes": [{"id": "a", "type": "t"}]}`
	first := w.do("POST", flowsAt, small)
	require.Equal(t, "-/request-1", first.body["id"])
	require.Equal(t, first.text, w.do("POST", flowsAt, small).text)
	w.header.Del("Idempotency-Key")
	require.Equal(t, http.StatusOK, w.do("POST", flowsAt, `{"key": "request-1", "nodes": [{"id": "a", "type": "t"}]}`).status)
	require.Equal(t, "-/own", w.ok("POST", flowsAt, `{"key": "own", "tenant": "-", "nodes": [{"id": "a", "type": "t"}]}`)["id"])
	require.Len(t, w.ok("GET", flowsAt, "")["flows"], 2)
}

func TestTheNodesOfAFlowSayWhenTheyWereReadyAndRan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	decide := w.engine()
	w.ok("POST", flowsAt, `{"key": "k", "nodes": [{"id": "a", "type": "t"}, {"id": "b", "type": "t", "after": ["a"]}, {"id": "c", "type": "t", "after": ["b"]}]}`)
	w.until(decide, flowsAt+"/-/k", "a", "SUCCESS", "t")
	require.Eventually(t, func() bool { // what was decided is carried out beside it
		tasks, _ := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["t"], "max": 1}`)["tasks"].([]any)
		return len(tasks) == 1
	}, testdb.Patience, 5*time.Millisecond)
	nodes := w.ok("GET", flowsAt+"/-/k/nodes", "")
	for path, there := range map[string]bool{
		"nodes.0.ready_at": true, "nodes.0.started_at": true, "nodes.0.ended_at": true,
		"nodes.1.ready_at": true, "nodes.1.started_at": true, "nodes.1.ended_at": false, "nodes.2.ready_at": false, "nodes.2.started_at": false,
	} {
		_, is := at(nodes, path).(string)
		require.Equal(t, there, is, path)
	}
	require.Equal(t, at(nodes, "nodes.1.ready_at"), at(nodes, "nodes.1.since"), "its status is stored since then")
	require.Equal(t, at(nodes, "nodes.0.ended_at"), at(nodes, "nodes.1.ready_at"))
	drawn := w.do("GET", flowsAt+"/-/k/picture?format=gantt", "")
	require.Equal(t, "image/svg+xml", drawn.header.Get("Content-Type"))
	require.Regexp(t, `(?s)data-node="a".*class="span".*data-node="b".*class="span".*data-node="c"`, drawn.text)
}

func TestWhatIsWrongWithAFlowIsToldByFieldAndNodeAndNothingIsWritten(t *testing.T) {
	w := newWorld(t)
	for body, want := range map[string]map[string]string{
		`{}`: {"body.nodes": ""},
		`{"key": "", "tenant": "a b", "nodes": [{"id": "a", "type": "t"}]}`:                    {"body.tenant": "a b"},
		`{"nodes": [{"id": "a", "handler": "t"}]}`:                                             {"body.nodes[0].handler": "use type"},
		`{"nodes": [{"id": "a", "type": "t"}, {"id": "b", "type": "t", "after": ["a", "x"]}]}`: {"body.nodes[1].after[1]": "(node b) is x"},
		`{"nodes": [{"id": "a", "type": "http", "args": {"url": "ftp://example.org"}}]}`:       {"body.nodes[0].args.url": "ftp"},
		`{"nodes": [{"id": "a", "type": "t", "options": {"timeout": "soon"}}]}`:                {"body.nodes[0].options.timeout": "soon"},
		`{"description": 1, "nodes": [{"id": "a", "type": "t", "priority": "x"}]}`:             {"body.description": "text", "body.nodes[0].priority": "number"},
		`{"nodes": [{"id": "N/A", "type": "a b", "on_failure": "stop", "priority": 12, "options": {"retry": {"max_errors": -1}}}]}`: {
			"body.nodes[0].id": "N/A", "body.nodes[0].type": "a b", "body.nodes[0].on_failure": "stop", "body.nodes[0].priority": "12", "body.nodes[0].options.retry.max_errors": "-1"},
		`{"nodes": [{"id": "in", "flow": {"tenant": "other", "key": "k", "nodes": [{"id": "x"}]}}]}`: {
			"body.nodes[0].flow.tenant": "", "body.nodes[0].flow.key": "", "body.nodes[0].flow.nodes[0].type": "(node in) (node x) is empty"},
		`{"callback": {"success": {"url": "ftp://example.org/x"}, "security": {"type": "hmac"}}, "nodes": [{"id": "a", "type": "t"}]}`: {"body.callback.success.url": "ftp", "body.callback.security.type": "hmac"},
	} {
		for _, path := range []string{flowsAt, flowsAt + "/validate"} {
			errs := w.fails(http.StatusUnprocessableEntity, "POST", path, body)
			for field, text := range want {
				require.Contains(t, errs, field, "%s: %v", body, errs)
				require.Contains(t, errs[field], text, body)
			}
		}
	}
	w.fails(http.StatusBadRequest, "POST", flowsAt, "")
	require.Equal(t, map[string]any{"key": "order/7", "nodes": 4.0}, w.ok("POST", flowsAt+"/validate", diamond))
	drawn := w.ok("POST", flowsAt+"/validate?picture=svg", diamond)
	require.Equal(t, 4.0, drawn["nodes"])
	require.Regexp(t, `(?s)^<svg .*data-node="b".*<title>b \(t\)</title>`, drawn["picture"])
	require.Contains(t, w.ok("POST", flowsAt+"/validate?picture=mermaid", diamond)["picture"], `n0["a<br/>t"]`)
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", flowsAt+"/validate?picture=svg", `{"nodes": [{"id": "a"}]}`)["body.nodes[0].type"], "(node a) is empty")
	w.fails(http.StatusUnprocessableEntity, "POST", flowsAt+"/validate?picture=png", diamond)
	require.Empty(t, w.ok("GET", flowsAt, "")["flows"])
}

func TestChangesOfFlowsAreRefusedByField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", flowsAt, `{"key": "k", "nodes": [
		{"id": "approve", "ask": {"title": "Is it correct?", "fields": [{"name": "amount", "kind": "number", "required": true}, {"name": "final", "kind": "bool"}]}},
		{"id": "book", "type": "t", "after": ["approve"], "args": {"n": {"$output": "approve.amount"}}}]}`)
	const k, none = flowsAt + "/-/k", flowsAt + "/-/none"
	require.Equal(t, "Is it correct?", at(w.ok("GET", k+"/nodes", ""), "nodes.0.ask.title"))
	for _, path := range []string{"", "/nodes", "/picture", "/wait", "/nodes/a/explain"} {
		require.Contains(t, w.fails(http.StatusNotFound, "GET", none+path, "")[""], "no such flow")
	}
	for path, body := range map[string]string{"/cancel": "", "/nodes/a/retry": "", "/nodes/a/resolve": `{"status": "ERROR"}`, "/nodes/a/answer": `{}`} {
		require.Contains(t, w.fails(http.StatusNotFound, "POST", none+path, body)[""], "no such flow")
	}
	require.Contains(t, w.fails(http.StatusNotFound, "GET", k+"/nodes/a/explain", "")[""], `no such node: "a" of the flow -/k`)
	require.Contains(t, w.fails(http.StatusNotFound, "POST", k+"/nodes/a/retry", "")[""], "-/k has no node a")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", k+"/nodes/approve/resolve", `{"status": "DONE"}`)["body.status"], "DONE")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", k+"/nodes/approve/resolve", `{"state": "ERROR"}`), "body.state")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", k+"/cancel", `{"remark": "a\u0000b"}`), "body.remark")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", k+"/picture?format=gif", ""), "query.format")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", flowsAt+"?status=DONE", ""), "query.status")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", k+"/nodes/a%20b/explain", ""), "path.node")
	require.Contains(t, w.fails(http.StatusConflict, "POST", k+"/nodes/book/answer", `{"values": {"a": 1}}`)[""], "it asks for no values")

	errs := w.fails(http.StatusUnprocessableEntity, "POST", k+"/nodes/approve/answer", `{"values": {"final": "maybe", "other": 1}}`)
	require.Contains(t, errs["body.values.amount"], "is missing")
	require.Contains(t, errs["body.values.final"], "true or false")
	require.Contains(t, errs["body.values.other"], "not asked for")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", k+"/nodes/approve/answer", `{"values": [1]}`), "body.values")
	require.Equal(t, "RUNNING", w.ok("POST", k+"/nodes/approve/answer", `{"values": {"amount": 12.5}, "remark": "looked at it"}`)["status"])
	require.EqualValues(t, 12.5, at(w.ok("GET", "/api/v1/tasks/-/t/flow:k:book", ""), "args.n"))
}

func TestAFlowIsDrawn(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", flowsAt, diamond)
	for query, want := range map[string][]string{
		"":                {"image/svg+xml", "<svg "},
		"?format=svg":     {"image/svg+xml", "order/7 · RUNNING"},
		"?format=dot":     {"text/vnd.graphviz; charset=utf-8", `"b" -> "d";`},
		"?format=mermaid": {"text/vnd.mermaid; charset=utf-8", `n0["a<br/>READY"]`},
	} {
		a := w.do("GET", flowsAt+"/-/order%2F7/picture"+query, "")
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Equal(t, want[0], a.header.Get("Content-Type"))
		require.Contains(t, a.text, want[1])
		require.Contains(t, a.header.Get("Content-Security-Policy"), "sandbox")
	}
}

func TestFlowsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.ok("POST", flowsAt, fmt.Sprintf(`{"key": "k%d", "nodes": [{"id": "a", "type": "t"}]}`, i))
	}
	w.ok("POST", flowsAt, `{"key": "k", "tenant": "acme", "nodes": [{"id": "a", "ask": "Well?"}]}`)
	w.ok("POST", streamsAt+"/s/g/nodes", `{"nodes": [{"id": "a", "type": "t"}]}`)
	list := func(query string) (ids []string, next string) {
		body := w.ok("GET", flowsAt+"?"+query, "")
		for _, f := range body["flows"].([]any) {
			ids = append(ids, at(f, "id").(string))
		}
		next, _ = body["next"].(string)
		return ids, next
	}
	all, next := list("")
	require.Len(t, all, 6, "a stream is not one of them")
	require.Empty(t, next)
	var paged []string
	for token := ""; ; {
		page, next := list("limit=2&page_token=" + url.QueryEscape(token))
		require.Len(t, page, 2)
		paged = append(paged, page...)
		if token = next; token == "" {
			break
		}
	}
	require.Equal(t, all, paged)
	acme, _ := list("tenant=acme")
	require.Equal(t, []string{"acme/k"}, acme)
	acme, _ = list("status=PENDING")
	require.Equal(t, []string{"acme/k"}, acme)
	without, _ := list("tenant=-")
	require.Len(t, without, 5)
	none, _ := list("tenant=acme&status=FINISH")
	require.Empty(t, none)
	for _, token := range []string{"x", "eHh4", "!!"} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", flowsAt+"?page_token="+token, ""), "page_token")
	}
}

// A stream of the scene acme has an id that a flow of the tenant acme could have.
func TestAStreamIsNoFlowOfATenant(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, mine := w.with(access.Admin), w.with(access.Admin, "acme")
	all.ok("POST", streamsAt+"/acme/k/nodes", `{"nodes": [{"id": "a", "type": "t"}]}`)
	for _, who := range []*world{all, mine} {
		for _, path := range []string{"", "/nodes", "/picture", "/wait", "/nodes/a/explain"} {
			who.fails(http.StatusNotFound, "GET", flowsAt+"/acme/k"+path, "")
		}
		for path, body := range map[string]string{"/cancel": "", "/nodes/a/retry": "", "/nodes/a/resolve": `{"status": "ERROR"}`, "/nodes/a/answer": `{}`} {
			who.fails(http.StatusNotFound, "POST", flowsAt+"/acme/k"+path, body)
		}
		who.fails(http.StatusConflict, "POST", flowsAt, `{"tenant": "acme", "key": "k", "nodes": [{"id": "a", "type": "t"}]}`)
	}
	require.Empty(t, mine.ok("GET", flowsAt, "")["flows"])
	mine.ok("POST", flowsAt, `{"key": "mine", "nodes": [{"id": "a", "type": "t"}]}`)
	all.fails(http.StatusNotFound, "GET", streamsAt+"/acme/mine", "")
	all.fails(http.StatusConflict, "POST", streamsAt+"/acme/mine/nodes", `{"nodes": [{"id": "a", "type": "t"}]}`)
	all.fails(http.StatusNotFound, "POST", streamsAt+"/acme/mine/cancel", "")
}

func TestAServerNeedsAKeyForTheSecretsOfFlows(t *testing.T) {
	t.Parallel()
	const signed = `{"key": "k", "callback": {"success": {"url": "https://example.org/x"}, "security": {"type": "aksk", "ak": "a", "sk": "very secret"}}, "nodes": [{"id": "a", "type": "t"}]}`
	require.Contains(t, newWorld(t).fails(http.StatusUnprocessableEntity, "POST", flowsAt, signed), "body.callback.security.keys[0].sk")
	w := newWorld(t, func(c *rest.Config) { c.SecretKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" })
	a := w.do("POST", flowsAt, signed)
	require.Equal(t, http.StatusCreated, a.status, a.text)
	require.NotContains(t, a.text+w.do("GET", flowsAt+"/-/k", "").text, "very secret")
	_, err := rest.New(rest.Config{Database: w.db, SecretKey: "short"})
	require.ErrorIs(t, err, model.ErrInvalid)
}

func TestOddPathsOfFlowsAreRefusedAndNotErrors(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{flowsAt + "/-/%ff", flowsAt + "/-/a%00b", streamsAt + "/%ff/g", streamsAt + "/s/a%00b", flowsAt + "/-/%ff/wait", flowsAt + "/-/" + url.PathEscape("☃/../x")} {
		a := w.do("GET", path, "")
		require.Contains(t, []int{http.StatusNotFound, http.StatusUnprocessableEntity}, a.status, "%s: %s", path, a.text)
	}
}

func TestNodesHavePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var nodes, want []any
	for i := range 25 {
		id := fmt.Sprintf("n%02d", i)
		n := map[string]any{"id": id, "type": "t"}
		if i > 0 {
			n["after"] = []string{fmt.Sprintf("n%02d", i-1)}
		}
		nodes, want = append(nodes, n), append(want, id)
	}
	body, err := json.Marshal(map[string]any{"key": "k", "nodes": nodes})
	require.NoError(t, err)
	w.ok("POST", "/api/v1/flows", string(body))
	for _, limit := range []int{1, 7, 24, 25, 100} {
		require.Equal(t, want, w.pages(fmt.Sprint("/api/v1/flows/-/k/nodes?limit=", limit), "nodes", "node"), limit)
	}
	all, _ := w.ok("GET", "/api/v1/flows/-/k/nodes", "")["nodes"].([]any)
	page := w.ok("GET", "/api/v1/flows/-/k/nodes?limit=3", "")
	rest, _ := w.ok("GET", "/api/v1/flows/-/k/nodes?limit=3&page_token="+page["next"].(string), "")["nodes"].([]any)
	require.Equal(t, all[3:6], rest, "a node on a page is as in the whole list")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/flows/-/k/nodes?page_token="+base64.RawURLEncoding.EncodeToString([]byte(" nobody")), ""), "page_token")
}
