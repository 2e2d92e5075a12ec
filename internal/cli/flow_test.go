package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// orderFlow waits for a person at stock.
const orderFlow = `key: order-7
description: an order
args: {text: paid}
nodes:
  - id: pay
    type: exec
    args: {argv: [echo, {$arg: text}]}
  - id: stock
    type: exec
    after: [pay]
    args: {argv: ["false"]}
    options: {retry: {strategy: none}}
  - id: mail
    type: exec
    after: [pay]
    when: {pay: {output.exit_code: 0}}
    args: {argv: [echo, {$output: pay.output}]}
  - id: done
    type: exec
    after: [stock, mail]
    args: {argv: [echo, done]}
`

func TestAFlowIsStartedShownResolvedAndRetried(t *testing.T) {
	s := newSession(t)
	path := s.file(orderFlow)
	require.Equal(t, "order-7  valid, 4 nodes\n", s.ok("flow", "validate", "-f", path).stdout)
	require.Equal(t, "pay  exec\n├─ stock  exec\n├─ mail  exec\ndone  exec  after stock, mail\n", s.ok("flow", "validate", "-f", path, "--graph", "text").stdout)
	require.Contains(t, s.ok("flow", "validate", "-f", path, "-o", "svg").stdout, `data-node="stock"`)
	s.fails(ExitUsage, []string{"--graph is \"gantt\"; want text, dot, mermaid, svg"}, "flow", "validate", "-f", path, "--graph", "gantt")
	require.Contains(t, s.run("flow", "list").stderr, "is not set up", "nothing was written")

	r := s.ok("flow", "start", "-f", path)
	require.Equal(t, "order-7  RUNNING\n", r.stdout)
	require.Contains(t, r.stderr, "no live worker runs exec; start one: mscheduler work --allow-exec; the task")
	require.Contains(t, r.stderr, "no flow engine is running")
	r = s.ok("flow", "start", "-f", path)
	require.Contains(t, r.stderr, "the key of order-7 already exists; nothing changed")
	require.NotContains(t, r.stderr, "no live worker", "nothing was stored")
	require.Contains(t, s.ok("flow", "validate", "-f", path).stderr, "no live worker runs exec; start one: mscheduler work --allow-exec\n")
	r = s.ok("flow", "show", "order-7")
	require.Regexp(t, `(?m)^NODE +TYPE +STATUS +SINCE +TOOK +AFTER +WHY
pay +exec +READY +\S.* +- +- +-
├─ stock +exec +WAIT +\S.* +- +pay +-
├─ mail +exec +WAIT +\S.* +- +pay +-
done +exec +WAIT +\S.* +- +stock, mail +-$`, r.stdout)
	require.Contains(t, r.stderr, "no flow engine is running")

	_, _, stop := s.worker("--flow")
	s.eventually("the flow waits for a person", func() bool {
		return strings.Contains(s.ok("flow", "list", "--status", "pending").stdout, "order-7")
	})
	require.Empty(t, s.ok("flow", "validate", "-f", path).stderr, "a worker runs exec")
	r = s.ok("flow", "list")
	require.Regexp(t, `(?m)^order-7 +PENDING +2 of 4 +2 `, r.stdout)
	r = s.ok("flow", "show", "order-7")
	require.Empty(t, r.stderr)
	require.Regexp(t, `(?m)^status +PENDING$`, r.stdout)
	require.Regexp(t, `(?m)^├─ stock +exec +PENDING +\S.* +pay +its task failed: false: exit status 1$`, r.stdout)
	require.Regexp(t, `(?m)^done +exec +PENDING .* stock, mail +blocked by stock, which is PENDING$`, r.stdout)
	require.Regexp(t, `(?m)^├─ mail +exec +SUCCESS`, r.stdout)

	var shown struct {
		ID, Status string
		Counts     map[string]int
		Nodes      []struct {
			Node, Status, Reason string
			TaskID               string `json:"task_id"`
			After                []string
			Output               map[string]any
		}
	}
	s.ok("flow", "show", "order-7", "-o", "json").json(&shown)
	require.Equal(t, "-/order-7 PENDING", shown.ID+" "+shown.Status)
	require.Equal(t, map[string]int{"SUCCESS": 2, "PENDING": 2}, shown.Counts)
	require.Equal(t, "paid\n", shown.Nodes[0].Output["output"])
	require.Equal(t, "-/exec/flow:order-7:pay", shown.Nodes[0].TaskID)
	require.Equal(t, "paid\n\n", shown.Nodes[2].Output["output"], "its argument is the output of pay")
	require.Contains(t, s.ok("flow", "list", "-o", "yaml").stdout, "id: -/order-7\n")

	r = s.ok("flow", "explain", "order-7", "stock")
	require.Contains(t, r.stdout, "stock of order-7 is PENDING.\n")
	require.Contains(t, r.stdout, "Resolve it as SUCCESS or ERROR")
	require.Contains(t, r.stdout, "mscheduler task explain 'exec/flow:order-7:stock'\n")

	s.fails(ExitUsage, []string{`status is "DONE"; want SUCCESS or ERROR`}, "flow", "resolve", "order-7", "stock", "done")
	s.fails(ExitNotFound, []string{`no such node: "x" of the flow order-7`}, "flow", "resolve", "order-7", "x", "SUCCESS")
	s.fails(ExitRefused, []string{"only PENDING can be resolved"}, "flow", "resolve", "order-7", "pay", "SUCCESS")
	s.fails(ExitNotFound, []string{"no such flow: acme/order-7"}, "flow", "resolve", "acme/order-7", "pay", "SUCCESS")
	require.Regexp(t, `^order-7  RUNNING`, s.ok("flow", "resolve", "order-7", "stock", "success", "--remark", "found by hand").stdout)
	r = s.ok("flow", "watch", "order-7")
	require.Regexp(t, `(?m)^20\S+Z  SUCCESS  order-7  stock  found by hand$`, r.stdout)
	require.Regexp(t, `(?m)^20\S+Z  SUCCESS  order-7  done$`, r.stdout)
	require.Regexp(t, `(?m)^20\S+Z  FINISH   order-7$`, r.stdout)
	require.Regexp(t, `(?m)^ended +20\S+ .*, took \S`, s.ok("flow", "show", "order-7").stdout)

	require.Regexp(t, `^order-7  RUNNING`, s.ok("flow", "retry", "order-7", "mail").stdout)
	r = s.ok("flow", "watch", "order-7", "-o", "json")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	var last struct{ Flow, Node, Status string }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, "-/order-7  FINISH", last.Flow+" "+last.Node+" "+last.Status)
	require.Contains(t, r.stdout, `"node":"mail","status":"SUCCESS","life":1}`)

	r = s.ok("worker", "list")
	require.Regexp(t, `(?m)^engine-\S+ +alive +mscheduler\.flow `, r.stdout)
	require.Contains(t, s.ok("doctor").stdout, "mscheduler.flow")
	s.ok("flow", "start", "-f", s.file("key: k2\nnodes: [{id: a, type: nobody}]\n"))
	require.Contains(t, checks(t, s.ok("doctor", "-o", "json"))["flows"].Detail, "a live engine carries their flows on")
	s.ok("flow", "cancel", "k2")
	require.Contains(t, stop().stderr, "tasks and the flows of")
}

func TestAPersonAnswersWhatANodeAsksOnTheCommandLine(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "start", "-f", s.file(`key: k
nodes:
  - id: approve
    ask:
      title: Is the amount correct?
      fields:
        - {name: amount, kind: number, required: true, help: in euros}
        - {name: final, kind: bool}
        - {name: send_by, kind: choice, choices: [post, courier]}
        - {name: note}
  - id: calm
    after: [approve]
    wait: 10m
  - id: book
    type: t
    after: [approve]
    args: {amount: {$output: approve.amount}, note: {$output: approve.note}}
  - {id: end, type: t, after: [book, calm]}
`))
	r := s.ok("flow", "show", "k")
	require.Regexp(t, `(?m)^approve +ask +PENDING +\S.* +- +it asks: Is the amount correct\?$`, r.stdout)
	require.Regexp(t, `(?m)^├─ calm +wait 10m0s +PENDING`, r.stdout)
	r = s.ok("flow", "explain", "k", "approve")
	require.Equal(t, "approve of k is PENDING.\nIt is PENDING: it asks: Is the amount correct?\namount: a number, required (in euros).\nfinal: true or false.\n"+
		"send_by: one of post, courier.\nnote: text.\nResolve it as SUCCESS with these values, or as ERROR.\n", r.stdout)
	s.fails(ExitUsage, []string{"mscheduler: flow k, node approve: --set amount is missing; it is required: in euros\n"}, "flow", "resolve", "k", "approve", "SUCCESS")
	s.fails(ExitUsage, []string{`mscheduler: flow k, node approve: --set amount is "x"; want a number`, `--set final is "maybe"; want true or false`, `--set send_by is "air"; want one of post, courier`, "--set other is not asked for; the node asks for amount, final, send_by, note"},
		"flow", "resolve", "k", "approve", "SUCCESS", "--set", "amount=x", "--set", "final=maybe", "--set", "send_by=air", "--set", "other=1")
	s.fails(ExitUsage, []string{`--set is "amount"; want FIELD=VALUE`}, "flow", "resolve", "k", "approve", "SUCCESS", "--set", "amount")
	s.fails(ExitUsage, []string{"--set works with SUCCESS"}, "flow", "resolve", "k", "approve", "ERROR", "--set", "amount=1")
	s.ok("flow", "resolve", "k", "approve", "success", "--set", "amount=12.50", "--set", "final=true", "--set", "note=17", "--remark", "looked at it")
	require.Contains(t, s.ok("task", "show", "t/flow:k:book", "-o", "json").stdout, `"args":{"amount":12.5,"note":"17"}`)
	var shown struct {
		Nodes []struct {
			Node, Reason string
			Output       map[string]any
		}
	}
	s.ok("flow", "show", "k", "-o", "json").json(&shown)
	require.Equal(t, map[string]any{"amount": 12.5, "final": true, "note": "17"}, shown.Nodes[0].Output)
	require.Equal(t, "looked at it", shown.Nodes[0].Reason)
	r = s.ok("flow", "explain", "k", "calm")
	require.Regexp(t, `^calm of k is READY\.\nIt waits until 20\S+Z\.\n$`, r.stdout)
	s.fails(ExitRefused, []string{"it asks for no values"}, "flow", "resolve", "k", "calm", "SUCCESS", "--set", "a=1")
}

func TestFlowsOfNodesAndElementsAreShown(t *testing.T) {
	s := newSession(t)
	s.fails(ExitUsage, []string{"types.yaml:5:16: nodes[0].flow.nodes[0].type (node in) (node x) is empty"}, "flow", "validate", "-f", s.file("key: k\nnodes:\n  - id: in\n    flow:\n      nodes: [{id: x}]\n"))
	path := s.file(`key: k
nodes:
  - id: in
    flow:
      nodes: [{id: x, type: exec, args: {argv: [echo, "1"]}}]
  - id: each
    type: exec
    after: [in]
    each: {items: [a, b, c], limit: 2}
    args: {argv: [echo, {$item: ""}]}
`)
	s.ok("flow", "start", "-f", path)
	r := s.ok("flow", "show", "k")
	require.Regexp(t, `(?m)^in +flow +RUNNING`, r.stdout)
	require.Regexp(t, `(?m)^each +each exec +WAIT`, r.stdout)
	require.Equal(t, "in of k is READY.\nIts flow k.in runs; flow show says more.\nIts task: mscheduler task explain 'mscheduler.node/flow:k:in'\n", s.ok("flow", "explain", "k", "in").stdout)
	r = s.ok("flow", "show", "k.in")
	require.Regexp(t, `(?m)^x +exec +READY`, r.stdout)
	require.Regexp(t, `(?m)^parent +k, node in$`, r.stdout)
	require.Contains(t, s.ok("flow", "list", "-o", "json").stdout, `"parent":"-/k/in"`)
	_, _, stop := s.worker("--flow")
	s.eventually("the flow is over", func() bool {
		return strings.Contains(s.ok("flow", "list", "--status", "finish").stdout, "k.in") && strings.Contains(s.ok("flow", "show", "k").stdout, "FINISH")
	})
	stop()
	var shown struct {
		Nodes []struct {
			Node   string
			Output any
		}
	}
	s.ok("flow", "show", "k", "-o", "json").json(&shown)
	require.Len(t, shown.Nodes[1].Output, 3)
	require.Equal(t, "c\n", shown.Nodes[1].Output.([]any)[2].(map[string]any)["output"])
	require.Equal(t, "1\n", shown.Nodes[0].Output.(map[string]any)["output"])
}

func TestAFlowIsCancelled(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "start", "-f", s.file("tenant: acme\nnodes: [{id: a, type: t}, {id: b, type: t, after: [a]}]\n"), "--key", "k/1")
	r := s.ok("flow", "cancel", "acme/k/1", "--remark", "no longer needed")
	require.Contains(t, r.stdout, "acme/k/1  RUNNING  no longer needed\n", "its first task ends when an engine hears of it")
	require.NotContains(t, r.stderr, "nothing changed")
	require.Contains(t, s.ok("flow", "cancel", "acme/k/1").stderr, "acme/k/1 is RUNNING; nothing changed\n")
	r = s.ok("flow", "show", "acme/k/1")
	require.Regexp(t, `(?m)^b +t +SKIPPED .* a +no longer needed$`, r.stdout)
	require.Regexp(t, `(?m)^acme/k/1 `, s.ok("flow", "list", "--tenant", "acme").stdout)
	r = s.ok("flow", "list", "--tenant", "other")
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, "no flows")
	require.Contains(t, s.ok("flow", "list", "--status", "pending").stderr, "no flow is PENDING")
	require.Contains(t, s.ok("plan", "list", "--status", "error").stderr, "no plan is ERROR")
}

func TestErrorsAboutFlowsAndPlansNameThemAsPeopleDo(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "start", "-f", s.file("key: k\nnodes: [{id: a, type: t}]\n"))
	s.fails(ExitRefused, []string{"flow k, node a: it is READY"}, "flow", "resolve", "k", "a", "SUCCESS")
	s.fails(ExitNotFound, []string{"no such node: \"b\" of the flow k\n"}, "flow", "explain", "k", "b")
	s.fails(ExitNotFound, []string{"no such flow: none\n"}, "flow", "cancel", "none")
	s.fails(ExitNotFound, []string{"no such plan: none\n"}, "plan", "reset", "none")
	s.fails(ExitNotFound, []string{"no such flow: a/b\n"}, "flow", "cancel", "a/b")
}

func TestACommandThatMakesANodePendingLogsNothing(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "start", "-f", s.file("key: k\nnodes: [{id: a, ask: one}, {id: b, type: t, after: [a]}]\n"))
	asked := func() bool { return strings.Contains(s.ok("flow", "show", "k").stdout, "PENDING") }
	if !asked() {
		_, _, stop := s.worker("--flow")
		s.eventually("the question", asked)
		stop()
	}
	r := s.ok("flow", "resolve", "k", "a", "ERROR")
	require.NotContains(t, r.stderr, "{", "no line of a log")
}

func TestWatchingAFlowEndsWhenItIsInterrupted(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "start", "-f", s.file(orderFlow))
	out, said, stop := s.start("flow", "watch", "order-7")
	s.eventually("it watches", func() bool { return strings.Contains(out.String(), "RUNNING  order-7\n") })
	s.eventually("it warns", func() bool { return strings.Contains(said.String(), "no flow engine is running") })
	r := stop()
	require.Equal(t, ExitOK, r.code, r.stderr)
	s.fails(ExitNotFound, []string{"no such flow: other"}, "flow", "watch", "other")
}

func TestTheGraphOfAFlowIsPrintedForOtherPrograms(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "start", "-f", s.file(orderFlow))
	require.Equal(t, "pay  READY\n├─ stock  WAIT\n├─ mail  WAIT\ndone  WAIT  after stock, mail\n", s.ok("flow", "show", "order-7", "--graph", "text").stdout)
	dot := s.ok("flow", "show", "order-7", "--graph", "dot").stdout
	require.Contains(t, dot, `"pay" [label="pay\nREADY", fillcolor="#cfe2ff"];`)
	require.Contains(t, dot, `"pay" -> "stock";`)
	require.Contains(t, dot, `"pay" -> "mail" [label="when"];`)
	require.Contains(t, s.ok("flow", "show", "order-7", "--graph", "mermaid").stdout, "n0 -->|when| n2\n")
	require.Equal(t, dot, s.ok("flow", "show", "order-7", "-o", "dot").stdout)
	svg := s.ok("flow", "show", "order-7", "-o", "svg").stdout
	require.Regexp(t, `(?s)^<svg .*</svg>\n$`, svg)
	for _, shown := range []string{"order-7 · RUNNING", ">pay<", ">stock<", ">mail<", ">done<", "READY ", ">1 READY<", ">3 WAIT<", ">when<", "created 20"} {
		require.Contains(t, svg, shown)
	}
	s.fails(ExitNotFound, []string{"no such flow: other"}, "flow", "show", "other", "-o", "svg")
	s.fails(ExitUsage, []string{`--output is "png"; want table, json, yaml, dot, mermaid, svg or gantt`}, "flow", "show", "order-7", "-o", "png")
	s.fails(ExitUsage, []string{"--graph prints no svg"}, "flow", "show", "order-7", "-o", "svg", "--graph", "dot")
	s.fails(ExitUsage, []string{`--output is "svg"; want table, json or yaml`}, "flow", "list", "-o", "svg")
}

func TestAFileOfFlowsThatIsWrongIsRefusedWholeWithItsLines(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	const good = "key: good\nnodes: [{id: a, type: t}]\n---\n"
	for content, said := range map[string][]string{
		good + "nodes:\n  - id: a\n    handler: t\n":                                                       {"types.yaml:6:5: nodes[0].handler is not known; use type"},
		good + "nodes:\n  - id: a\n    type: t\n  - id: b\n    type: t\n    after: [a, x]\n":               {"types.yaml:9:16: nodes[1].after[1] (node b) is x; there is no such node"},
		good + "nodes: [{id: a, type: t, after: [b]}, {id: b, type: t, after: [a]}]\n":                     {"have a cycle: "},
		good + "nodes: [{id: a, type: t, args: {x: {$output: b.y}}}, {id: b, type: t, after: [a]}]\n":      {"types.yaml:4:46: nodes[0].args.x.$output (node a)"},
		good + "nodes: [{id: a, type: t, options: {timeout: soon}}]\n":                                     {`options.timeout is "soon"; want a duration`},
		good + "nodes: [{id: a, type: http, args: {urll: x}}]\n":                                           {"types.yaml:4:42: nodes[0].args.urll is not an argument of this type"},
		good + "nodes: [{id: a, flow: {nodes: [{id: b, type: exec}]}}]\n":                                  {"types.yaml:4:46: nodes[0].flow.nodes[0].args.argv is missing"},
		good + "nodes: [{id: N/A, type: t}]\n":                                                             {"the name of no node"},
		good + "nodes: [{id: a, type: t}, {id: b, type: t, after: [a], join: {strategy: at_least, n: 2}}]": {"join.n"},
		"":     {"there are no flows"},
		"[]\n": {"types.yaml:1:1"},
	} {
		path := s.file(content)
		s.fails(ExitUsage, said, "flow", "validate", "-f", path)
		s.fails(ExitUsage, said, "flow", "start", "-f", path)
	}
	s.fails(ExitUsage, []string{"--key works with a single flow", "has 2"}, "flow", "start", "--key", "k", "-f", s.file(good+"nodes: [{id: a, type: t}]\n"))
	r := s.ok("flow", "list")
	require.Empty(t, r.stdout, "nothing was written by any of them")
}

func TestTheArgumentsOfAFlowAreGivenOnTheCommandLine(t *testing.T) {
	s := newSession(t)
	path := s.file("args: {n: 1}\nnodes: [{id: a, type: t, args: {n: {$arg: n}}}]\n")
	s.ok("flow", "start", "-f", path, "--key", "k", "--args", `{"n": 2}`)
	require.Contains(t, s.ok("task", "show", "t/flow:k:a", "-o", "json").stdout, `"args":{"n":2}`)
}

func TestFlowsAreListedPageByPage(t *testing.T) {
	s := newSession(t)
	var want []string
	for i := range 7 {
		key := fmt.Sprint("k/", i)
		s.ok("flow", "start", "-f", s.file("tenant: acme\nnodes: [{id: a, type: t}]\n"), "--key", key)
		want = append([]string{"acme/" + key}, want...)
	}
	var got []string
	r := s.ok("flow", "list", "--limit", "3", "--status", "running")
	for {
		got = append(got, regexp.MustCompile(`(?m)^acme/\S+`).FindAllString(r.stdout, -1)...)
		next := regexp.MustCompile(`--after '(.*)'`).FindStringSubmatch(r.stderr)
		if next == nil {
			break
		}
		if len(got) == 3 { // what changes meanwhile moves to the head, and disturbs no other page
			s.ok("flow", "cancel", "acme/k/4")
		}
		r = s.ok("flow", "list", "--limit", "3", "--status", "running", "--after", next[1])
	}
	require.Equal(t, want, got)

	s.ok("flow", "start", "-f", s.file("nodes: [{id: a, type: t}]\n"), "--key", "k/5")
	for args, want := range map[string][]string{"k": {"acme/k/0", "acme/k/1", "acme/k/2", "acme/k/3", "acme/k/4", "acme/k/5", "acme/k/6"}, "k/5": {"acme/k/5"}, "none": nil} {
		got, after := []string(nil), ""
		for {
			r := s.ok("flow", "list", "--tenant", "acme", "--key", args, "--limit", "3", "--after", after)
			got = append(got, regexp.MustCompile(`(?m)^acme/\S+`).FindAllString(r.stdout, -1)...)
			next := regexp.MustCompile(`--after '(.*)'`).FindStringSubmatch(r.stderr)
			if next == nil {
				break
			}
			after = next[1]
		}
		require.Equal(t, want, got)
	}
	r = s.ok("flow", "list", "--key", "k/")
	require.Regexp(t, `(?m)^-/k/5 `, r.stdout)
	require.NotContains(t, r.stdout, "acme")
	require.Empty(t, s.ok("flow", "list", "--tenant", "acme", "--key", "k", "--status", "pending").stdout)

	var page struct {
		Flows []struct{ ID string }
		Next  string
	}
	require.NoError(t, json.Unmarshal([]byte(s.ok("flow", "list", "--tenant", "acme", "--limit", "7", "-o", "json").stdout), &page))
	require.Len(t, page.Flows, 7)
	require.Empty(t, page.Next, "there is no other page")
	require.NoError(t, json.Unmarshal([]byte(s.ok("flow", "list", "--tenant", "acme", "--limit", "6", "-o", "json").stdout), &page))
	require.NotEmpty(t, page.Next)
	s.fails(ExitUsage, []string{`--after is "k"`, "the previous page printed"}, "flow", "list", "--after", "k")
}

func TestANodeThatIsNotLinkedYetIsExplained(t *testing.T) {
	s := newSession(t)
	s.ok("flow", "append", "orders", "a", "-f", s.file(strings.Repeat(`{"type": "t"}`+"\n", 300)+`{"id": "last", "type": "t"}`))
	require.Regexp(t, `^last of orders/a is INIT\.\nIt is appended and not linked to the chain yet. Nodes before it: 300\.\nIt is linked [^\n]*\n$`, s.ok("flow", "explain", "orders/a", "last").stdout)
}

func TestAStreamIsAppendedToListedResolvedAndOpened(t *testing.T) {
	s := newSession(t)
	path := s.file(`{"id": "a", "type": "exec", "args": {"argv": ["true"]}}

{"id": "b", "type": "exec", "args": {"argv": ["false"]}, "options": {"retry": {"strategy": "none"}}}
{"id": "c", "type": "exec", "args": {"argv": ["false"]}, "on_failure": "end", "options": {"retry": {"strategy": "none"}}}
{"id": "d", "type": "exec", "args": {"argv": ["true"]}}
`)
	wrong := s.file("{\"id\": \"a b\", \"type\": \"exec\"}\n{\"type\": \"exec\", \"after\": [\"a\"], \"prio\": 1}\n")
	r := s.run("flow", "append", "orders", "4711", "-f", wrong)
	require.Equal(t, ExitUsage, r.code)
	require.Contains(t, r.stderr, `:1:8: id (node "a b") is "a b"; want 1 to 64 of a-z A-Z 0-9 _ -`)
	require.Contains(t, r.stderr, ":2:34: prio is not known in a node")
	require.Contains(t, s.run("flow", "append", "a/b", "4711", "--type", "exec").stderr, `scene is "a/b"; a slash is not allowed`)
	require.Contains(t, s.run("flow", "append", "a", "b", "--type", "exec").stderr, "args.argv is missing")
	require.Contains(t, s.run("flow", "list").stderr, "is not set up", "nothing was written")

	r = s.ok("flow", "append", "orders", "4711", "-f", path)
	require.Equal(t, "orders/4711  4 nodes are in the stream\n", r.stdout)
	require.Contains(t, r.stderr, "no flow engine is running")
	require.Equal(t, "orders/4711  a is in the stream\n", s.ok("flow", "append", "orders", "4711", "--type", "exec", "--args", `{"argv": ["true"]}`, "--id", "a").stdout)
	require.Regexp(t, `(?m)^orders/4711 +RUNNING +0 +3 +a +\S`, s.ok("flow", "lines").stdout)
	require.Regexp(t, `(?m)^orders/4711 +RUNNING +0 of 4 `, s.ok("flow", "list").stdout)

	require.Contains(t, s.run("flow", "append", "orders", "4711", "--type", "t", "--callback", `{"error": {"url": "nowhere"}}`).stderr, "callback.error.url")
	s.fails(ExitNotFound, []string{"no such stream: orders/none"}, "flow", "open", "orders", "none", "--callback", `{"error": {"url": "http://127.0.0.1:1/"}}`)
	s.fails(ExitNotFound, []string{"mscheduler: no such stream: orders/none"}, "flow", "open", "orders", "none")
	s.ok("flow", "open", "orders", "4711", "--callback", `{"error": {"url": "http://127.0.0.1:1/"}}`, "--ext", "7")
	require.Contains(t, s.run("flow", "append", "orders", "4711", "--type", "t", "--ext", "7").stderr, "--ext works with --callback")

	_, _, stop := s.worker("--flow")
	s.eventually("the stream waits for a person", func() bool {
		return strings.Contains(s.ok("flow", "lines").stdout, "b PENDING")
	})
	s.eventually("the receiver of the stream is called", func() bool {
		return strings.Contains(s.ok("task", "list", "--type", "mscheduler.callback", "-o", "json").stdout, `"mscheduler.callback"`)
	})
	require.Contains(t, s.ok("flow", "explain", "orders/4711", "c").stdout, "Resolve b to let it go on.")
	s.ok("flow", "resolve", "orders/4711", "b", "SUCCESS")
	s.eventually("the stream is closed", func() bool {
		return strings.Contains(s.ok("flow", "lines").stdout, "FINISH, closed")
	})
	require.Regexp(t, `(?m)^orders/4711 +FINISH, closed +0 +1 +- +- +a +d +3 +3 +node c failed and ends the stream$`, s.ok("flow", "lines").stdout)
	r = s.run("flow", "append", "orders", "4711", "--type", "exec", "--args", `{"argv": ["true"]}`)
	require.Equal(t, ExitRefused, r.code)
	require.Contains(t, r.stderr, "the stream is closed")
	require.Contains(t, s.ok("flow", "open", "orders", "4711").stdout, "orders/4711  RUNNING")
	s.eventually("the stream is idle", func() bool { return !strings.Contains(s.ok("flow", "lines").stdout, "orders/4711") })
	require.Regexp(t, `(?m)^orders/4711 +RUNNING +0 +0 +- +- +a +d +4 +4 +-$`, s.ok("flow", "lines", "--all").stdout)
	var shown struct {
		Kind   string
		Counts map[string]int
	}
	s.ok("flow", "show", "orders/4711", "-o", "json").json(&shown)
	require.Equal(t, "stream", shown.Kind)
	require.Equal(t, map[string]int{"SUCCESS": 3, "ERROR": 1}, shown.Counts)
	stop()
}

func TestARefusedAppendLeavesTheCallbackOfItsStream(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	calls := func(place string) []string {
		return []string{"flow", "append", "orders", "4711", "--type", "t", "--callback", `{"error": {"url": "http://127.0.0.1:1/` + place + `"}}`}
	}
	s.ok(calls("first")...)
	s.ok("flow", "cancel", "orders/4711")
	s.fails(ExitRefused, []string{"the stream is closed"}, calls("second")...)
	var doc graph.Flow
	require.NoError(t, database(t, s).Collection("flows").FindOne(t.Context(), bson.D{{Key: "_id", Value: "orders/4711"}}).Decode(&doc))
	require.Equal(t, "http://127.0.0.1:1/first", doc.Callback.Error.URL)
}

func TestTheDoctorWarnsOfFlowsThatNoEngineCarriesOn(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	require.Equal(t, "no node of a flow runs or may run", checks(t, s.ok("doctor", "-o", "json"))["flows"].Detail)
	s.ok("flow", "start", "-f", s.file("key: k\nnodes: [{id: a, type: t}]\n"))
	found := checks(t, s.ok("doctor", "-o", "json"))["flows"]
	require.Equal(t, "warn", found.State)
	require.Contains(t, found.Detail, "there is no live engine of flows")
	require.Contains(t, found.Advice, "mscheduler work --flow")
}
