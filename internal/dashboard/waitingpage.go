package dashboard

import (
	"net/url"
	"strings"
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
	ID, Path, Page string
	Nodes          []any
	Large          bool // its nodes are on its own page
	Doc            document
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
	flows, more, err := v.waitingFlows(q)
	if err != nil {
		return err
	}
	streams := []any{}
	if v.who.Tenants == nil && q.Get("tenant") == "" { // streams belong to no tenant
		doc, err := v.get("/streams", url.Values{"limit": {"100"}})
		if err != nil {
			return err
		}
		for _, s := range list(doc["streams"]) {
			if text(object(s)["node_status"]) == "PENDING" {
				streams = append(streams, s)
			}
		}
	}
	v.render("waiting", page{Title: "Waiting for people", Nav: "Waiting", Poll: 5, Data: document{
		"tasks": list(tasks["tasks"]), "next": tasks["next"], "flows": flows, "more": more, "streams": streams,
	}})
	return nil
}

// waitingFlows are the flows that wait for somebody, those that changed last first.
func (v *visit) waitingFlows(q url.Values) (out []waitingFlow, more bool, err error) {
	q.Set("status", "PENDING")
	q.Set("limit", "50")
	doc, err := v.get("/flows", v.ofTenant(q))
	if err != nil {
		return nil, false, err
	}
	for i, f := range list(doc["flows"]) {
		f := object(f)
		id := text(f["id"])
		w := waitingFlow{ID: id, Path: "/flows" + idPath(id, 2), Page: "/flows" + idPath(id, 2), Doc: f}
		nodes := int64(0)
		for _, n := range object(f["counts"]) {
			nodes += integer(n)
		}
		if w.Large = i >= mostFlowsAsked || nodes > mostNodesAsked; !w.Large {
			nodes, err := v.every(w.Path+"/nodes", "nodes", url.Values{})
			if unlessGone(err) != nil {
				return nil, false, err
			}
			for _, n := range nodes {
				if strings.EqualFold(text(object(n)["status"]), "PENDING") {
					w.Nodes = append(w.Nodes, n)
				}
			}
		}
		out = append(out, w)
	}
	return out, text(doc["next"]) != "", nil
}
