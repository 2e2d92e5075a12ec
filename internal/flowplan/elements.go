package flowplan

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// The letters of [graph.State.Elements].
const (
	ElementWaits     = 'w'
	ElementRuns      = 'r'
	ElementSucceeded = 's'
	ElementFailed    = 'e'
	ElementPending   = 'p' // its task waits for a person
)

// openLetters are the letters of elements that have not ended.
const openLetters = string(ElementRuns) + string(ElementWaits) + string(ElementPending)

// ElementOpen says whether the element with that letter has not ended.
func ElementOpen(letter byte) bool { return strings.IndexByte(openLetters, letter) >= 0 }

// startElements lets the elements of a node start, as many as may run at once.
func (s *step) startElements(i int, do string) {
	var gone error
	items, err := flowspec.Elements(&s.Nodes[i], s.outputOf(&gone))
	switch err = cmp.Or(gone, err); {
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
	case ElementPending:
		return e.Status != model.StatusPending
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
	switch {
	case succeeded(e.Status):
		letters[e.Element-1] = ElementSucceeded
	case e.Status == model.StatusPending:
		letters[e.Element-1] = ElementPending
	default:
		letters[e.Element-1] = ElementFailed
	}
}

// advance continues the nodes whose elements have ended. It starts other elements, makes the node PENDING if
// only a person can end the rest, or ends the node. What has become of the nodes whose own tasks have ended is decided.
func (s *step) advance(own map[int]bool) {
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
		case !s.Closed && !own[i] && elementsAsk(&s.States[i]):
			s.States[i].Own = true
			s.set(i, graph.NodePending, fmt.Sprintf("%d of its %d elements are Pending, the first is element %d",
				bytes.Count(letters, []byte{ElementPending}), len(letters), bytes.IndexByte(letters, ElementPending)))
		}
	}
	clear(s.letters)
}

// elementsAsk says whether of the elements of a node only those are open whose tasks wait for a person.
func elementsAsk(st *graph.State) bool {
	return strings.IndexByte(st.Elements, ElementPending) >= 0 && !strings.ContainsAny(st.Elements, string(ElementRuns)+string(ElementWaits))
}

// drop has the elements of a life that is over cancelled. One that has failed may be running again for a person.
func (s *step) drop(i int) {
	var left []int
	for k := range len(s.States[i].Elements) {
		if s.States[i].Elements[k] != ElementSucceeded {
			left = append(left, k)
		}
	}
	if len(left) > 0 {
		at := s.Trimmed + i
		s.Planned = append(s.Planned, graph.Planned{ID: planID(s.Rev, at) + planDrop, Node: at, Do: DoDrop, Life: s.States[i].Life, Elements: left})
	}
}

// Gathers says whether the task of a node with elements is to end: all of them have ended, or one has
// failed and that ends the flow.
func Gathers(f *graph.Flow, i int) bool {
	st := &f.States[i]
	failed := strings.IndexByte(st.Elements, ElementFailed) >= 0
	open := strings.ContainsAny(st.Elements, openLetters)
	switch st.Status { //nolint:exhaustive // in the others nothing is expected of it
	case graph.NodeReady:
		return !open || failed && f.Nodes[i].OnFailure == graph.End && !f.Closed
	case graph.NodePending: // a person has decided about the last, or had one that failed run again
		return st.Own && !open
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
	if pending := n(ElementPending); pending > 0 {
		out += fmt.Sprintf("; %d are Pending", pending)
	}
	return out + fmt.Sprintf("; %d may run now.", n(ElementRuns))
}
