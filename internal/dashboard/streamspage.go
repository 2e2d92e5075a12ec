package dashboard

import "net/url"

var streamRoutes = routes{"/streams": (*visit).streams, "/streams/{scene}/{group...}": (*visit).stream}

// liveStreams are the events of streams, which belong to no tenant.
var liveStreams = url.Values{"of": {"flows"}}

func (v *visit) streams() error {
	doc, err := v.rows("streams")
	if err != nil {
		return err
	}
	all := list(doc["streams"])
	for _, s := range all {
		s := object(s)
		s["state"] = streamState(s)
	}
	v.render("streams", page{Title: "Streams", Nav: "Flows", Live: liveStreams, Poll: pollTasks, Data: document{"streams": all, "next": doc["next"], "unreadable": list(doc["unreadable"])}})
	return nil
}

// streamState says in one word whether the nodes of a stream run.
func streamState(s document) string {
	switch {
	case s["closed"] == true:
		return "closed"
	case text(s["node_status"]) == pending:
		return "suspended"
	default:
		return "open"
	}
}

func (v *visit) stream() error {
	path := "/streams" + pathOf(v.r.PathValue("scene"), v.r.PathValue("group"))
	doc, err := v.get(path, nil)
	if err != nil {
		return err
	}
	nodes, err := v.get(path+"/nodes", nil)
	if err != nil {
		return err
	}
	all, name := list(nodes["nodes"]), text(doc["stream"])
	if node := v.r.URL.Query().Get("node"); node != "" {
		return v.node(&graphOf{path: path, name: name, nav: "Flows", live: liveStreams, chain: true}, all, node)
	}
	counts := countsOf(all)
	shown, next := pageOf(v, ofStatus(all, v.r.URL.Query().Get("status")), nodeName)
	v.render("stream", page{Title: name, Nav: "Flows", Live: liveStreams, Poll: pollTasks, Data: document{
		"stream": doc, "state": streamState(doc), "path": path, "counts": counts, "statuses": nodeStatuses, "total": len(all), "nodes": shown, "next": next,
	}})
	return nil
}
