package dashboard

import (
	"net/url"
	"slices"
	"strconv"
)

// graphOf is a flow, or a stream, whose node a page shows.
type graphOf struct {
	path string // of it, in the API and of its page
	name string
	nav  string
	live url.Values
	doc  document
	// chain says that it is a stream: its nodes run one after the other, and only a PENDING one runs again.
	chain bool
}

// node shows one of the nodes of a flow or a stream.
func (v *visit) node(g *graphOf, nodes []any, id string) error {
	at := slices.IndexFunc(nodes, func(n any) bool { return text(object(n)["node"]) == id })
	node := document{"node": id}
	if at >= 0 {
		whole := v.read(g.path+"/nodes", url.Values{"node": {id}})
		for _, n := range list(whole["nodes"]) { // it may have left a stream since
			node = object(n)
		}
	}
	path := g.path + "/nodes" + pathOf(id)
	why := v.read(path+"/explain", nil)
	if at < 0 { // of a stream: it is linked later, or has left
		node["status"], node["task_id"] = why["status"], why["task_id"]
	}
	status := text(node["status"])
	before, behind := aroundOf(nodes, at)
	asks := status == pending
	return v.render("node", page{Title: g.name + " " + id, Nav: g.nav, Live: g.live, Poll: pollTasks, Data: document{
		"node": node, "why": why, "path": path, "of": g.path, "name": g.name, "chain": g.chain,
		"before": before, "next": behind.next, "again": behind.again(),
		"resolve": asks, "retry": asks || slices.Contains(final, status) && !g.chain, "ask": object(node["ask"]),
	}})
}

// behindOf are the nodes that come after a node.
type behindOf struct {
	next []any // with their states: those that it leads to
	all  int   // how many there are, however far
}

// again says what a retry of the node does.
func (b behindOf) again() string {
	if b.all == 0 {
		return "This node begins a new life."
	}
	return "This node and the " + strconv.Itoa(b.all) + " behind it begin new lives."
}

// aroundOf finds the parents of a node, and what is behind it. Each node of the list comes after its parents.
func aroundOf(nodes []any, at int) (before []any, behind behindOf) {
	if at < 0 {
		return nil, behind
	}
	self := text(object(nodes[at])["node"])
	parents := texts(object(nodes[at])["after"])
	reached := map[string]bool{self: true}
	for i, n := range nodes {
		n := object(n)
		id, after := text(n["node"]), texts(n["after"])
		if i < at && slices.Contains(parents, id) {
			before = append(before, n)
		}
		if i <= at || !slices.ContainsFunc(after, func(p string) bool { return reached[p] }) {
			continue
		}
		reached[id] = true
		behind.all++
		if slices.Contains(after, self) {
			behind.next = append(behind.next, n)
		}
	}
	return before, behind
}
