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
	tasks, err := v.get("/tasks", v.ofTenant(asked))
	if err != nil {
		return err
	}
	asks := v.waitingQuery(q)
	asks.Set("limit", "50")
	doc, err := v.get("/flows", asks)
	if err != nil {
		return err
	}
	flows, err := v.waitingFlows(list(doc["flows"]), mostFlowsAsked)
	if err != nil {
		return err
	}
	var streams document
	if v.showsStreams(q) {
		if streams, err = v.get("/streams", url.Values{"status": {pending}, "limit": {"100"}}); err != nil {
			return err
		}
	}
	asked.Del("limit")
	v.render("waiting", page{Title: "Waiting for people", Nav: "Waiting", Poll: 5, Data: document{
		"tasks": list(tasks["tasks"]), "next": tasks["next"], "flows": flows, "more": text(doc["next"]) != "", "streams": list(streams["streams"]), "moreStreams": text(streams["next"]) != "", "pending": asked,
	}})
	return nil
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
func (v *visit) waitingFile() (rows []any, err error) {
	q := v.r.URL.Query()
	docs, err := v.every("/flows", "flows", v.waitingQuery(q))
	if err != nil {
		return nil, err
	}
	flows, err := v.waitingFlows(docs, len(docs))
	if err != nil {
		return nil, err
	}
	for _, f := range flows {
		for _, n := range f.Nodes {
			n := object(n)
			rows = append(rows, document{"of": "flow", "id": f.ID, "node": n["node"], "since": n["since"], "reason": cmp.Or(text(object(n["ask"])["title"]), text(n["reason"])), "error_info": n["error_info"]})
		}
		if f.Large {
			rows = append(rows, document{"of": "flow", "id": f.ID, "since": f.Doc["updated_at"], "reason": f.Doc["reason"]})
		}
	}
	if !v.showsStreams(q) {
		return rows, nil
	}
	streams, err := v.every("/streams", "streams", url.Values{"status": {pending}})
	for _, s := range streams {
		s := object(s)
		rows = append(rows, document{"of": "stream", "id": s["stream"], "node": s["node"], "since": s["since"], "reason": s["reason"]})
	}
	return rows, err
}

// waitingFlows finds in each of the first flows the nodes that wait for somebody themselves. A node that only hangs on
// another one is none of them: a retry would start it ahead of that.
func (v *visit) waitingFlows(docs []any, asked int) (out []waitingFlow, err error) {
	for i, f := range docs {
		f := object(f)
		id := text(f["id"])
		w := waitingFlow{ID: id, Path: "/flows" + idPath(id, 2), Doc: f}
		count := int64(0)
		for _, n := range object(f["counts"]) {
			count += integer(n)
		}
		if w.Large = i >= asked || count > mostNodesAsked; !w.Large {
			nodes, err := v.nodeStates(w.Path)
			if unlessGone(err) != nil {
				return nil, err
			}
			w.Nodes = asking(nodes)
			for _, n := range w.Nodes {
				at := slices.IndexFunc(nodes, func(one any) bool { return nodeName(one) == nodeName(n) })
				_, behind := aroundOf(nodes, at)
				object(n)["again"] = behind.again()
			}
		}
		out = append(out, w)
	}
	return out, nil
}
