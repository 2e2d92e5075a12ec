package dashboard

import (
	"net/url"
	"strconv"
	"time"
)

var streamRoutes = routes{"/streams": (*visit).streams, "/streams/{scene}/{group...}": (*visit).stream}

// liveStreams are the events of streams, which belong to no tenant.
var liveStreams = url.Values{"of": {"flows"}}

func (v *visit) streams() error {
	doc := v.rows("streams")
	all := list(doc["streams"])
	for _, s := range all {
		s := object(s)
		s["state"], s["speed"] = streamState(s), speedOf(s)
	}
	return v.render("streams", page{Title: "Streams", Nav: "Flows", Live: liveStreams, Poll: pollTasks, Data: document{"streams": all, "next": doc["next"], "unreadable": list(doc["unreadable"])}})
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

// speed is how many nodes of a stream end a minute, and for how long its backlog lasts at the speed of the last five minutes.
type speed struct {
	Minutes, Hour string // over the last five minutes, and the last hour
	Lasts         string // "" = there is no backlog, or nothing ends
}

func speedOf(s document) speed {
	lately := integer(s["ended_5m"])
	out := speed{Minutes: perMinute(lately, 5), Hour: perMinute(integer(s["ended_1h"]), 60)}
	if backlog := integer(s["init"]) + integer(s["wait"]); backlog > 0 && lately > 0 {
		out.Lasts = span(time.Duration(float64(backlog) / float64(lately) * float64(5*time.Minute)).Truncate(time.Second))
	}
	return out
}

func perMinute(n, minutes int64) string {
	rate := float64(n) / float64(minutes)
	if n == 0 || rate >= 10 {
		return number(int64(rate + 0.5))
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}

func (v *visit) stream() error {
	path := "/streams" + pathOf(v.r.PathValue("scene"), v.r.PathValue("group"))
	doc := v.read(path, nil)
	all := v.nodeStates(path)
	name := text(doc["stream"])
	if node := v.r.URL.Query().Get("node"); node != "" {
		return v.node(&graphOf{path: path, name: name, nav: "Flows", live: liveStreams, chain: true}, all, node)
	}
	counts := countsOf(all)
	shown, next := pageOf(v, tables["chain"].kept(v.r.URL.Query(), all), nodeName)
	return v.render("stream", page{Title: name, Nav: "Flows", Live: liveStreams, Poll: pollTasks, Data: document{
		"stream": doc, "state": streamState(doc), "speed": speedOf(doc), "path": path, "counts": counts, "statuses": nodeStatuses, "total": len(all), "nodes": shown, "next": next,
	}})
}
