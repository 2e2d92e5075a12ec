package flowdraw

import (
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// says is what a picture tells of a node: its status, or in a definition, where none has one, what it does.
func says(v *graph.Vertex, status graph.NodeStatus) string {
	if status == "" {
		return Kind(v)
	}
	return string(status)
}

// Kind is what a node does: the type of its task, or for what it waits; ask is for a person.
func Kind(v *graph.Vertex) string {
	switch {
	case v.Until != "":
		return "wait until " + strings.Trim(v.Until, `"`)
	case v.For != 0:
		return "wait " + v.For.String()
	case v.Each != nil && v.Task != nil:
		return "each " + v.Task.Type
	case v.Flow != nil:
		return "flow"
	case v.Ask != nil:
		return "ask"
	default:
		return v.Type
	}
}
