package flowplan

import (
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/scenario"
)

// beginStream makes a stream as its first append does, with the nodes of that.
func (s *seeded) beginStream(c scenario.Command) string {
	s.flow = &graph.Flow{ID: "s/g", Key: "s/g", Kind: graph.KindStream, Scene: "s", Group: "g", Status: graph.StatusRunning, Rev: 1, CreatedAt: s.now, UpdatedAt: s.now}
	return s.append(c)
}

// append stores nodes of a stream: those of the lines below, or as many as count says.
func (s *seeded) append(c scenario.Command) string {
	spec := specOf(c)
	if c.Has("count") {
		for range c.Number("count") {
			spec.Nodes = append(spec.Nodes, graph.NodeSpec{ID: fmt.Sprint("n", s.appended+len(spec.Nodes)+1), Type: "t"})
		}
	}
	scene, group := "s", "g"
	if c.Has("scene") {
		scene = strings.Repeat("s", c.Number("scene"))
	}
	if c.Has("group") {
		group = strings.Repeat("g", c.Number("group"))
	}
	nodes, err := flowspec.Append(scene, group, spec.Nodes, func() string { return "generated" }, s.now)
	if err != nil {
		return err.Error()
	}
	for _, n := range nodes {
		s.appended++
		n.No = int64(s.appended)
	}
	s.inits = append(s.inits, nodes...)
	s.flow.Appended = int64(s.appended)
	return s.show(nil)
}

// chain shows the parent of each node of the window, as it is stored.
func (s *seeded) chain() string {
	var out []string
	for i := range s.flow.Nodes {
		v := &s.flow.Nodes[i]
		if v.Prev == "" {
			out = append(out, v.ID+" is the first")
		} else {
			out = append(out, v.ID+" after "+v.Prev)
		}
	}
	return strings.Join(out, "\n")
}

// counts are the numbers of nodes by their statuses, and how many have left the window.
func (s *seeded) counts() string {
	n := map[graph.NodeStatus]int{graph.NodeInit: len(s.inits)}
	for i := range s.flow.States {
		n[s.flow.States[i].Status]++
	}
	due := ""
	if at := s.flow.DueAt; !at.IsZero() && !at.After(s.now) {
		due = ", more are to be linked at once"
	}
	return fmt.Sprintf("%d INIT, %d READY, %d WAIT, %d over%s", n[graph.NodeInit], n[graph.NodeReady], n[graph.NodeWait], n[graph.NodeSuccess]+n[graph.NodeError]+s.flow.Trimmed, due)
}

func begunAs(f *graph.Flow) string {
	if f.Kind == graph.KindStream {
		return "stream"
	}
	return "flow"
}
