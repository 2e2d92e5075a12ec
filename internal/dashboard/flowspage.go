package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

var flowRoutes = routes{"/flows": (*visit).flows, "/flows/{tenant}/{key...}": (*visit).flow}

// flowStatuses are those of flows.
var flowStatuses = []string{"RUNNING", pending, finished}

// nodeStatuses are those of nodes, in the order in which people look for them.
var nodeStatuses = []string{pending, "ERROR", "RUNNING", "READY", "WAIT", "INIT", "SUCCESS", "SKIPPED"}

const (
	pending  = "PENDING" // a flow, or a node, waits for a person
	finished = "FINISH"  // a flow has ended
)

// final are the statuses of nodes that have ended.
var final = []string{"SUCCESS", "SKIPPED", "ERROR"}

func (v *visit) flows() error {
	doc := v.rows("flows")
	all := list(doc["flows"])
	for _, f := range all {
		f := object(f)
		f["progress"] = progressOf(object(f["counts"]))
	}
	q := v.r.URL.Query()
	live := v.ofTenant(pick(q, "tenant"))
	live.Set("of", "flows")
	return v.render("flows", page{Title: "Flows", Nav: "Flows", Live: live, Data: document{
		"flows": all, "next": doc["next"], "unreadable": list(doc["unreadable"]), "statuses": flowStatuses, "all": len(pick(q, "tenant", "key", "status")) == 0,
	}})
}

// progress is how far the nodes of a flow are: a bar of parts, and the same in words.
type progress struct {
	Parts []part
	Words string
}

// part of a bar that is 100 wide.
type part struct {
	Class    string
	X, Width float64
}

// progressOf counts by status.
func progressOf(counts document) *progress {
	total, ended := int64(0), int64(0)
	for status, n := range counts {
		total += integer(n)
		if slices.Contains(final, status) {
			ended += integer(n)
		}
	}
	if total == 0 {
		return &progress{Words: "no nodes"}
	}
	p := &progress{Words: fmt.Sprintf("%s of %s ended", number(ended), number(total))}
	at := 0.0
	for _, status := range slices.Concat(final, []string{pending, "RUNNING", "READY"}) {
		n := integer(counts[status])
		if n == 0 {
			continue
		}
		width := 100 * float64(n) / float64(total)
		p.Parts = append(p.Parts, part{stateOf(status).Class, at, width})
		at += width
		if status != "SUCCESS" && status != "SKIPPED" {
			p.Words += fmt.Sprintf(", %s %s", number(n), status)
		}
	}
	return p
}

func (v *visit) flow() error {
	id := []string{v.r.PathValue("tenant"), v.r.PathValue("key")}
	path := "/flows" + pathOf(id...)
	g := graphOf{path: path, nav: "Flows", live: url.Values{"of": {"flows"}, "tenant": id[:1], "key": id[1:]}}
	doc := v.read(path, nil)
	g.name, g.doc = text(doc["id"]), doc
	all := v.nodeStates(path)
	if node := v.r.URL.Query().Get("node"); node != "" {
		return v.node(&g, all, node)
	}
	counts, gantt := countsOf(all), v.r.URL.Query().Get("view") == "gantt"
	if gantt {
		all = byStart(all)
	}
	shown, next := pageOf(v, tables["nodes"].kept(v.r.URL.Query(), all), nodeName)
	return v.render("flow", page{Title: g.name, Nav: "Flows", Live: g.live, Poll: pollTasks, Data: document{
		"flow": doc, "path": path, "gantt": gantt, "progress": progressOf(counts), "counts": counts, "statuses": nodeStatuses, "total": len(all),
		"nodes": shown, "next": next, "asking": first(asking(all), mostAsking), "over": text(doc["status"]) == finished,
		"parent": parentOf(text(doc["parent"])),
	}})
}

// nodeStates reads the nodes of a flow or a stream without their outputs.
func (v *visit) nodeStates(path string) []any {
	return v.every(path+"/nodes", "nodes", url.Values{"outputs": {"false"}})
}

// byStart are nodes in the order in which they started, as the API draws them: then those that wait for their start,
// then the others.
func byStart(nodes []any) []any {
	out := slices.Clone(nodes)
	began := func(n any) string {
		o := object(n)
		for _, name := range []string{"started_at", "ready_at", "ended_at"} {
			if at := text(o[name]); at != "" {
				return at
			}
		}
		return "never" // behind all times
	}
	slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(began(a), began(b)) })
	return out
}

// pollTasks is after how many seconds a page sees that tasks of nodes have begun: the flow does not change then.
const pollTasks = 5

// mostAsking is how many nodes that wait for a person a page names.
const mostAsking = 10

// asking are the nodes that wait for a person themselves: no node before them does.
func asking(nodes []any) []any {
	waits := map[string]bool{}
	for _, n := range nodes {
		waits[text(object(n)["node"])] = text(object(n)["status"]) == pending
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n any) bool {
		o := object(n)
		return !waits[text(o["node"])] || slices.ContainsFunc(texts(o["after"]), func(parent string) bool { return waits[parent] })
	})
}

func first(values []any, n int) []any { return values[:min(n, len(values))] }

// countsOf counts nodes by status.
func countsOf(nodes []any) document {
	n := map[string]int64{}
	for _, one := range nodes {
		n[text(object(one)["status"])]++
	}
	out := document{}
	for status, count := range n {
		out[status] = count
	}
	return out
}

// keepsNode reports whether a list of nodes of one status shows a node.
func keepsNode(q url.Values, node document) bool {
	status := q.Get("status")
	return status == "" || text(node["status"]) == status
}

// nodeName is the id of a node within its flow.
func nodeName(n any) string { return text(object(n)["node"]) }

// parentOf is the page of the node that started a flow: its flow's id, a slash and its own.
func parentOf(parent string) string {
	flow, node := cutLast(parent)
	if flow == "" {
		return ""
	}
	return "/flows" + idPath(flow, 2) + "?" + url.Values{"node": {node}}.Encode()
}

func cutLast(id string) (before, last string) {
	if at := strings.LastIndexByte(id, '/'); at >= 0 {
		return id[:at], id[at+1:]
	}
	return "", id
}
