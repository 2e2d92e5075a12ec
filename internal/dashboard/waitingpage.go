package dashboard

import (
	"cmp"
	"net/url"
	"slices"
)

var waitingRoutes = routes{"/waiting": (*visit).waiting}

const (
	// mostFlowsAsked is how many pending flows the page looks into, and mostNodesAsked how many nodes each of them may
	// have: the page of a larger flow shows its own.
	mostFlowsAsked = 10
	mostNodesAsked = 200
)

// waitingFlow is a flow that waits for somebody, with the nodes that do.
type waitingFlow struct {
	ID, Path string // Path is that of the API and of the page
	Nodes    []any
	Large    bool // its nodes are on its own page
	Doc      document
}

func (v *visit) waiting() error {
	q := pick(v.r.URL.Query(), "tenant")
	asked := url.Values{"status": {"Pending"}, "limit": {"50"}}
	for _, name := range []string{"tenant", "page_token"} {
		if value := v.r.URL.Query().Get(name); value != "" {
			asked.Set(name, value)
		}
	}
	tasks := v.read("/tasks", v.ofTenant(asked))
	asks := v.waitingQuery(q)
	asks.Set("limit", "50")
	doc := v.read("/flows", asks)
	flows := v.waitingFlows(list(doc["flows"]), mostFlowsAsked)
	var streams document
	if v.showsStreams(q) {
		streams = v.read("/streams", url.Values{"status": {pending}, "limit": {"100"}})
	}
	asked.Del("limit")
	return v.render("waiting", page{Title: "Waiting for people", Nav: "Waiting", Poll: 5, Data: document{
		"tasks": list(tasks["tasks"]), "next": tasks["next"], "flows": flows, "more": text(doc["next"]) != "", "streams": list(streams["streams"]), "moreStreams": text(streams["next"]) != "", "pending": asked,
	}})
}

// waitingQuery asks for the flows that wait for somebody, those that changed last first.
func (v *visit) waitingQuery(q url.Values) url.Values {
	out := pick(q, "tenant")
	out.Set("status", pending)
	return v.ofTenant(out)
}

// showsStreams reports whether the page has streams whose node waits for somebody. Streams belong to no tenant.
func (v *visit) showsStreams(q url.Values) bool {
	return v.who.Tenants == nil && q.Get("tenant") == ""
}

// waitingFile are all nodes that wait for somebody, those of flows and of streams, as a file has them.
func (v *visit) waitingFile() (rows []any) {
	q := v.r.URL.Query()
	docs := v.every("/flows", "flows", v.waitingQuery(q))
	for _, f := range v.waitingFlows(docs, len(docs)) {
		for _, n := range f.Nodes {
			n := object(n)
			rows = append(rows, document{"of": "flow", "id": f.ID, "node": n["node"], "since": n["since"], "reason": cmp.Or(text(object(n["ask"])["title"]), text(n["reason"])), "error_info": n["error_info"]})
		}
		if f.Large {
			rows = append(rows, document{"of": "flow", "id": f.ID, "since": f.Doc["updated_at"], "reason": f.Doc["reason"]})
		}
	}
	if !v.showsStreams(q) {
		return rows
	}
	for _, s := range v.every("/streams", "streams", url.Values{"status": {pending}}) {
		s := object(s)
		rows = append(rows, document{"of": "stream", "id": s["stream"], "node": s["node"], "since": s["since"], "reason": s["reason"]})
	}
	return rows
}

// waitingFlows finds in each of the first flows the nodes that wait for somebody themselves. A node that only hangs on
// another one is none of them: a retry would start it ahead of that.
func (v *visit) waitingFlows(docs []any, asked int) (out []waitingFlow) {
	for i, f := range docs {
		f := object(f)
		id := text(f["id"])
		w := waitingFlow{ID: id, Path: "/flows" + idPath(id, 2), Doc: f}
		count := int64(0)
		for _, n := range object(f["counts"]) {
			count += integer(n)
		}
		if w.Large = i >= asked || count > mostNodesAsked; !w.Large {
			nodes := v.nodeStates(w.Path)
			v.err = unlessGone(v.err)
			w.Nodes = asking(nodes)
			for _, n := range w.Nodes {
				at := slices.IndexFunc(nodes, func(one any) bool { return nodeName(one) == nodeName(n) })
				_, behind := aroundOf(nodes, at)
				object(n)["again"] = behind.again()
			}
		}
		out = append(out, w)
	}
	return out
}
