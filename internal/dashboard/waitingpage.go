package dashboard

import (
	"cmp"
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
	streams, moreStreams, err := v.waitingStreams(q)
	if err != nil {
		return err
	}
	asked.Del("limit")
	v.render("waiting", page{Title: "Waiting for people", Nav: "Waiting", Poll: 5, Data: document{
		"tasks": list(tasks["tasks"]), "next": tasks["next"], "flows": flows, "more": more, "streams": streams, "moreStreams": moreStreams, "pending": asked,
	}})
	return nil
}

// waitingStreams are the streams whose node waits for somebody, those that changed last first. Streams belong to no tenant.
func (v *visit) waitingStreams(q url.Values) (out []any, more bool, err error) {
	if v.who.Tenants != nil || q.Get("tenant") != "" {
		return nil, false, nil
	}
	doc, err := v.get("/streams", url.Values{"status": {pending}, "limit": {"100"}})
	return list(doc["streams"]), text(doc["next"]) != "", err
}

// waitingFile are the nodes that the page shows, those of flows and of streams, as a file has them.
func (v *visit) waitingFile() (rows []any, err error) {
	q := pick(v.r.URL.Query(), "tenant")
	streams, _, err := v.waitingStreams(q)
	if err != nil {
		return nil, err
	}
	flows, _, err := v.waitingFlows(q)
	for _, f := range flows {
		for _, n := range f.Nodes {
			n := object(n)
			rows = append(rows, document{"of": "flow", "id": f.ID, "node": n["node"], "since": n["since"], "reason": cmp.Or(text(object(n["ask"])["title"]), text(n["reason"])), "error_info": n["error_info"]})
		}
		if f.Large {
			rows = append(rows, document{"of": "flow", "id": f.ID, "since": f.Doc["updated_at"], "reason": f.Doc["reason"]})
		}
	}
	for _, s := range streams {
		s := object(s)
		rows = append(rows, document{"of": "stream", "id": s["stream"], "node": s["node"], "since": s["since"], "reason": s["reason"]})
	}
	return rows, err
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
			nodes, err := v.nodeStates(w.Path)
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
