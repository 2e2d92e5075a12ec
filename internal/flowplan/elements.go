package flowplan

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
)

// The letters of [graph.State.Elements].
const (
	ElementWaits     = 'w'
	ElementRuns      = 'r'
	ElementSucceeded = 's'
	ElementFailed    = 'e'
)

// startElements lets the elements of a node start, as many as may run at once.
func (s *step) startElements(i int, do graph.Action) {
	items, err := flowspec.Elements(&s.Nodes[i], s.outputOf)
	switch {
	case !s.in.Ready(): // the decision is made again with what it lacks
	case err != nil:
		s.fail(i, err)
		s.plan(i, DoAbort)
	default:
		now := len(items)
		if limit := s.Nodes[i].Each.Limit; limit > 0 {
			now = min(now, limit)
		}
		s.States[i].Elements = strings.Repeat(string(ElementRuns), now) + strings.Repeat(string(ElementWaits), len(items)-now)
		s.plan(i, do)
	}
}

// elementWaits says whether the end of an element says something new.
func elementWaits(f *graph.Flow, e End) bool {
	st := &f.States[e.Node]
	if f.Nodes[e.Node].Each == nil || st.Life != e.Life || e.Element > len(st.Elements) || st.Status != graph.NodeReady && (st.Status != graph.NodePending || !st.Own) {
		return false
	}
	switch st.Elements[e.Element-1] {
	case ElementWaits, ElementRuns:
		return true
	case ElementFailed: // a person has had it run again
		return succeeded(e.Status)
	default:
		return false
	}
}

// element notes the end of an element.
func (s *step) element(e End) {
	letters := s.letters[e.Node]
	if letters == nil {
		letters = []byte(s.States[e.Node].Elements)
		s.letters[e.Node] = letters
	}
	letters[e.Element-1] = ElementFailed
	if succeeded(e.Status) {
		letters[e.Element-1] = ElementSucceeded
	}
}

// advance goes on with the nodes of which elements have ended: others may run, or all have ended.
func (s *step) advance() {
	for i := range s.Nodes {
		letters := s.letters[i]
		if letters == nil {
			continue
		}
		var more []int
		if limit := s.Nodes[i].Each.Limit; limit > 0 && !s.Closed && s.States[i].Status == graph.NodeReady {
			for at := bytes.IndexByte(letters, ElementWaits); at >= 0 && bytes.Count(letters, []byte{ElementRuns}) < limit; at = bytes.IndexByte(letters, ElementWaits) {
				letters[at] = ElementRuns
				more = append(more, at)
			}
		}
		s.States[i].Elements = string(letters)
		switch {
		case Gathers(s.Flow, i):
			s.plan(i, DoGather)
		case len(more) > 0:
			s.plan(i, DoElements)
			s.Planned[s.plans[i]].Elements = more
		}
	}
	clear(s.letters)
}

// Gathers says whether the task of a node with elements is to end: all of them have ended, or one has
// failed and that ends the flow.
func Gathers(f *graph.Flow, i int) bool {
	st := &f.States[i]
	failed := strings.IndexByte(st.Elements, ElementFailed) >= 0
	open := strings.ContainsAny(st.Elements, string(ElementRuns)+string(ElementWaits))
	switch st.Status { //nolint:exhaustive // in the others nothing is expected of it
	case graph.NodeReady:
		return !open || failed && f.Nodes[i].OnFailure == graph.End && !f.Closed
	case graph.NodePending: // a person has had the last that failed run again
		return st.Own && !open && !failed
	default:
		return false
	}
}

// elementsNow says how far the elements of a node are.
func elementsNow(st *graph.State) string {
	n := func(letter rune) int { return strings.Count(st.Elements, string(letter)) }
	out := fmt.Sprintf("%d of its %d elements have ended", n(ElementSucceeded)+n(ElementFailed), len(st.Elements))
	if failed := n(ElementFailed); failed > 0 {
		out += fmt.Sprintf(", %d of them failed", failed)
	}
	return out + fmt.Sprintf("; %d may run now.", n(ElementRuns))
}
