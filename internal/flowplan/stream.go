package flowplan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of the window of a stream.
const (
	// PerLink is the maximum number of nodes that one decision links (seed 002).
	PerLink = 100
	// roomAt is the number of linked nodes that have not ended beyond which no more are linked.
	roomAt = PerLink
)

const (
	// linkAgain is how often engines look for nodes of a recent append, in case the appending process
	// has died before it linked them.
	linkAgain = 5 * time.Second
	// AppendPatience is for how long after an append engines look for its nodes.
	AppendPatience = 10 * time.Second
	// TransactionPatience is the same for an append in a transaction, which lasts at most a minute by
	// the server's default.
	TransactionPatience = 90 * time.Second
	// LinkGrace is how long other processes wait for the appending process to link its nodes.
	LinkGrace = 2 * time.Second
)

// noNode is the place of the node of a plan about a stream to which none was linked.
const noNode = -1

// OfNode says whether a plan is about a node. Otherwise it has no place.
func OfNode(p *graph.Planned) bool { return p.Node != noNode }

// Place is the index in Nodes of the node of a plan.
func Place(f *graph.Flow, p *graph.Planned) int { return p.Node - f.Trimmed }

// open is how many nodes of a stream's window are not over.
func open(f *graph.Flow) (n int) {
	for i := range f.States {
		if !Final(f.States[i].Status) {
			n++
		}
	}
	return n
}

// Room is how many nodes may be linked to a stream now. It is 0 while there are many already, so
// that the document stays small.
func Room(f *graph.Flow) int {
	if f.Closed || open(f) > roomAt {
		return 0
	}
	return PerLink
}

// Link decides about the nodes of a stream that were appended, in the order of their numbers, each
// not over: those that are not linked are, as far as there is room. more says that there are others
// behind them. The chain's nodes that are over leave the window, but for the last. A stream that is
// not due, and about which nothing is to be decided, is returned as it is.
func Link(f *graph.Flow, appended []*graph.Node, more bool, now time.Time) *graph.Flow {
	return link(f, appended, more, begin, now)
}

// LinkDry is [Link] for a stream that is [Dry], in the same decision that has made it so.
func LinkDry(f *graph.Flow, appended []*graph.Node, more bool, now time.Time) *graph.Flow {
	return link(f, appended, more, goOn, now)
}

// Dry reports whether all linked nodes of an open stream have ended.
func Dry(f *graph.Flow) bool { return f.Kind == graph.KindStream && !f.Closed && open(f) == 0 }

func link(f *graph.Flow, appended []*graph.Node, more bool, begin func(*graph.Flow, *Inputs, time.Time) *step, now time.Time) *graph.Flow {
	known := make(map[string]bool, len(f.Nodes))
	leave := trimmable(f)
	for i := range f.Nodes { // but those that are over: a key comes again when the record of its node is gone
		known[f.Nodes[i].ID] = i >= leave && (len(f.Planned) > 0 || !Final(f.States[i].Status))
	}
	room := Room(f)
	var links []*graph.Node
	left := 0 // of the appended, for which there is no room
	for _, n := range appended {
		switch {
		case known[n.Node]: // a link that is not carried out yet
		case len(links) < room:
			links = append(links, n)
		default:
			left++
		}
	}
	due := !f.DueAt.IsZero() && !f.DueAt.After(now)
	if len(links) == 0 && !due && (f.Backlog || left == 0 && !more) {
		return f
	}
	s := begin(f, nil, now)
	if len(links) > 0 {
		s.link(links)
	}
	s.DueAt, s.Backlog = time.Time{}, left > 0 || more
	if s.LookUntil.After(s.now) {
		s.DueAt = s.now.Add(linkAgain)
	}
	out, _ := s.finish() // nothing is judged that needs an input
	// A link that cannot be carried out yet hides the nodes behind it.
	if len(links) == 0 && room > 0 && more {
		out.DueAt = s.now.Add(linkAgain)
	}
	return out
}

// link ties nodes to the end of the chain.
func (s *step) link(nodes []*graph.Node) {
	s.trim()
	first, prev := len(s.Nodes), ""
	if first > 0 {
		prev = s.Nodes[first-1].ID
	}
	if first == 1 && slices.ContainsFunc(nodes, func(n *graph.Node) bool { return n.Node == prev }) { // its key comes again
		s.Nodes, s.States, s.Trimmed, first = nil, nil, s.Trimmed+1, 0
	}
	for _, n := range nodes {
		v := graph.Vertex{ID: n.Node, Type: n.Type, OnFailure: n.OnFailure, Join: graph.AllEnded, Prev: prev, CreatedAt: n.CreatedAt}
		prev = n.Node
		s.Nodes, s.States = append(s.Nodes, v), append(s.States, graph.State{Status: graph.NodeWait, At: s.now})
	}
	Chain(s.Flow)
	s.index()
	at := s.Trimmed + first
	if at == 0 {
		s.First = nodes[0].Node
	}
	s.plans = map[int]int{} // what was planned is of nodes before these, and the places have moved
	s.Planned = append(s.Planned, graph.Planned{ID: "link-" + strconv.FormatInt(s.Rev, 10), Node: at, N: len(nodes), Do: DoLink, Links: nodes})
	s.dirty[first] = true
}

// trim removes the first nodes that are over from the window, but for the last node of the chain
// and those that something is planned about.
func (s *step) trim() {
	n := trimmable(s.Flow)
	s.Nodes, s.States, s.Trimmed = append([]graph.Vertex(nil), s.Nodes[n:]...), s.States[n:], s.Trimmed+n
}

// trimmable is how many nodes leave the window with the next link.
func trimmable(f *graph.Flow) (n int) {
	for n < len(f.Nodes)-1 && Final(f.States[n].Status) {
		n++
	}
	for k := range f.Planned {
		if p := &f.Planned[k]; OfNode(p) {
			n = min(n, Place(f, p))
		}
	}
	return n
}

// Chain fills in the parents of a stream's nodes, each the one before it. They are not stored.
func Chain(f *graph.Flow) {
	for i := 1; i < len(f.Nodes); i++ {
		f.Nodes[i].After = []int{i - 1}
	}
	if len(f.Nodes) > 0 {
		f.Nodes[0].After = nil
	}
}

// next lets a node of a stream run if it is its turn.
func (s *step) next(i int) {
	if s.Closed || i > 0 && !Final(s.States[i-1].Status) {
		return
	}
	s.set(i, graph.NodeReady, "")
	s.plan(i, DoRelease)
}

// rest says what a stream is of which no node runs.
func (s *step) rest() {
	s.Status, s.RunningAt = graph.StatusRunning, time.Time{}
	for i := range s.States {
		if s.States[i].Status == graph.NodePending {
			s.Status = graph.StatusPending
			return
		}
	}
	if s.Closed {
		s.Status = graph.StatusFinish
		if s.EndedAt.IsZero() { // else it is looked at once more
			s.EndedAt = s.now
		}
	}
}

// refill has more nodes linked when there is room for them.
func (s *step) refill() {
	if s.Backlog && Room(s.Flow) > 0 && (s.DueAt.IsZero() || s.DueAt.After(s.now)) {
		s.DueAt = s.now
	}
}

// abort cancels what runs of a stream.
func (s *step) abort() {
	for i := range s.States {
		if s.States[i].Status == graph.NodeReady {
			s.plan(i, DoAbort)
		}
	}
}

// Open opens a closed stream. If the stream is open, it returns f itself.
func Open(f *graph.Flow, now time.Time) (*graph.Flow, error) {
	switch {
	case f.Kind != graph.KindStream:
		return nil, &RefusedError{f.ID, "", "it is no stream"}
	case !f.Closed:
		return f, nil
	}
	s := begin(f, nil, now)
	s.Closed, s.Reason, s.EndedAt, s.DueAt = false, "", time.Time{}, s.now
	for i := range s.States {
		s.dirty[i] = true
	}
	return s.finish()
}

// SetCallback decides who is called about a stream; nil = nobody.
func SetCallback(f *graph.Flow, c *model.Callback, ext bson.RawValue, now time.Time) (*graph.Flow, error) {
	if f.Kind != graph.KindStream {
		return nil, &RefusedError{f.ID, "", "it is no stream"}
	}
	s := *f
	s.Callback, s.Ext, s.Rev, s.UpdatedAt = c, ext, f.Rev+1, clock.Millis(now)
	return &s, nil
}

// explainWait says why a node of a stream waits.
func explainWait(f *graph.Flow, node int) []string {
	prev := f.Nodes[node].Prev
	if f.Closed {
		return []string{fmt.Sprintf("The stream is closed: %s.", f.Reason), "Open the stream to let it go on."}
	}
	out := []string{fmt.Sprintf("It starts when %s, the node before it, has ended.", prev)}
	for i := range f.States[:node] {
		if v := f.Nodes[i].ID; f.States[i].Status == graph.NodePending {
			return append(out, fmt.Sprintf("Resolve %s to let it go on.", v))
		}
	}
	for i := range f.States[:node] {
		if v := f.Nodes[i].ID; f.States[i].Status == graph.NodeReady {
			return append(out, fmt.Sprintf("%s runs, or is about to; %d nodes are before this one.", v, node-i))
		}
	}
	return out
}

// ExplainApart is [Explain] for a node that is not in the window of its stream. before is how many nodes
// that are not linked either are before it.
func ExplainApart(f *graph.Flow, n *graph.Node, before int) []string {
	if Final(n.Status) {
		return []string{endedAs(n.Status, n.At, n.Reason)}
	}
	out := []string{fmt.Sprintf("It is appended and not linked to the chain yet. Nodes before it: %d.", before+open(f))}
	switch {
	case f.Closed:
		return append(out, fmt.Sprintf("The stream is closed: %s.", f.Reason), "Open the stream to let it go on.")
	case Room(f) == 0:
		return append(out, fmt.Sprintf("It is linked when at most %d linked nodes have not ended.", roomAt))
	}
	return append(out, "An engine links it within seconds; one must run.")
}

// noun is what people call it.
func (s *step) noun() string {
	if s.Kind == graph.KindStream {
		return "stream"
	}
	return "flow"
}
