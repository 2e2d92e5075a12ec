package flowplan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// EngineType is the type under which engines of flows are listed among the workers.
const EngineType = "mscheduler.flow"

// Retention is how long a flow and its nodes are kept after its end.
const Retention = 90 * 24 * time.Hour

// The reasons of all nodes together stay below this, so that a document that was not too large at
// first never becomes so, but each may have leastReason: ten thousand nodes may fail. The task of a
// node has all of its error.
const (
	reasonBytes = 2 << 20
	leastReason = 200
)

// Inputs are what a decision may need in addition to the flow.
type Inputs struct {
	// Outputs are the outputs of nodes that succeeded. A decision that lacks one notes the
	// place in Missing; the caller adds the output and decides again.
	Outputs map[Life]bson.RawValue
	Missing map[int]bool
	// Gone are nodes that succeeded and whose outputs no longer exist. A node that needs one fails.
	Gone map[Life]bool
	// Taken is what conditions said of outputs; decisions add to it. nil = nobody remembers that.
	Taken map[Edge]bool
	// Working says of PENDING nodes whether something of them may run still: a person has had it run again. A decision
	// that lacks one notes the place in Asked. nil = nothing of any does.
	Working map[Life]bool
	Asked   map[int]bool
	// Joins are the registered functions. A node whose join is not among them waits, and is due for engines that have it.
	Joins map[string]JoinFunc
	// Impatient says that joins have failed for long, or that a person decides: a node whose join fails
	// becomes PENDING.
	Impatient bool
}

// Life is a life of a node: its place in the flow, and how often a person had restarted it.
type Life struct {
	Node int
	Life int64
}

// LifeOf is the present life of a node.
func LifeOf(f *graph.Flow, node int) Life { return Life{node, f.States[node].Life} }

// Edge is an edge to the node at a place.
type Edge struct {
	Node   int
	Parent Life
}

// GoneError is the error of a node that needs an output that no longer exists.
type GoneError struct{ Node string } // whose output it was

func (e *GoneError) Error() string {
	return fmt.Sprintf("the output of node %s is gone: its task has been deleted", e.Node)
}

// output is the output of a node that succeeded. The error is a [*GoneError].
func (in *Inputs) output(f *graph.Flow, node int) (bson.RawValue, error) {
	if !flowspec.HasTask(&f.Nodes[node]) {
		return f.States[node].Output, nil
	}
	if in.Gone[LifeOf(f, node)] {
		return bson.RawValue{}, &GoneError{f.Nodes[node].ID}
	}
	out, known := in.Outputs[LifeOf(f, node)]
	if !known {
		in.Lacks(node)
	}
	return out, nil
}

// Lacks notes that the decision needs the output of a node.
func (in *Inputs) Lacks(node int) {
	if in.Missing == nil {
		in.Missing = map[int]bool{}
	}
	in.Missing[node] = true
}

// works says whether something of a PENDING node may run still.
func (in *Inputs) works(f *graph.Flow, node int) bool {
	if in.Working == nil || !flowspec.HasTask(&f.Nodes[node]) {
		return false
	}
	works, known := in.Working[LifeOf(f, node)]
	if !known {
		if in.Asked == nil {
			in.Asked = map[int]bool{}
		}
		in.Asked[node] = true
	}
	return works
}

// Ready reports whether the decision had all that it needed.
func (in *Inputs) Ready() bool { return len(in.Missing)+len(in.Asked) == 0 }

// step is one decision about a flow in the making: a copy of the flow that becomes one guarded
// write.
type step struct {
	*graph.Flow
	in       *Inputs
	now      time.Time
	children [][]int        // of each node, by place
	dirty    []bool         // nodes that are to be judged, by place
	plans    map[int]int    // of this decision, by node: places in Planned
	letters  map[int][]byte // of nodes whose elements have ended, by place
	err      error
}

// StatusNow is the status of a node as people see it: a READY node whose task a worker runs is
// RUNNING. The stored status stays READY until the task has ended.
func StatusNow(stored graph.NodeStatus, t *model.Task) graph.NodeStatus {
	if stored == graph.NodeReady && lifecycle.OpenExecutions(t) > 0 {
		return graph.NodeRunning
	}
	return stored
}

func begin(f *graph.Flow, in *Inputs, now time.Time) *step {
	c := *f
	c.States, c.Planned = slices.Clone(f.States), slices.Clone(f.Planned)
	c.Rev++
	s := &step{Flow: &c, in: in, now: clock.Millis(now), plans: map[int]int{}, letters: map[int][]byte{}}
	s.index()
	return s
}

// goOn is a step of the same decision that has made the flow.
func goOn(f *graph.Flow, in *Inputs, now time.Time) *step {
	s := begin(f, in, now)
	s.Rev--
	for k := range s.Planned {
		switch p := &s.Planned[k]; p.ID {
		case planID(s.Rev, p.Node):
			s.plans[Place(f, p)] = k
		case planID(s.Rev, p.Node) + planAlert:
			s.plans[alertOf(Place(f, p))] = k
		case planID(s.Rev, p.Node) + planAbort:
			s.plans[abortOf(Place(f, p))] = k
		}
	}
	return s
}

// index prepares what is known by the places of the nodes.
func (s *step) index() {
	s.children, s.dirty = make([][]int, len(s.Nodes)), make([]bool, len(s.Nodes))
	for i := range s.Nodes {
		for _, at := range s.Nodes[i].After {
			s.children[at] = append(s.children[at], i)
		}
	}
}

// clip cuts a reason, so that all of them together stay small.
func clip(f *graph.Flow, reason string) string {
	return safetext.Clip(reason, max(leastReason, reasonBytes/len(f.States)))
}

// set gives a node a status, and has its children judged.
func (s *step) set(i int, status graph.NodeStatus, reason string) {
	st := &s.States[i]
	reason = clip(s.Flow, reason)
	if st.Status == status && st.Reason == reason {
		return
	}
	// hangs would not do: who asks a person has set Own by now.
	news, hung := st.Status != status, st.Status == graph.NodePending && strings.HasPrefix(st.Reason, lifecycle.BlockedBy)
	if news {
		st.At, st.DueAt = s.now, time.Time{}
	}
	st.Status, st.Reason = status, reason
	cut := s.Closed && status == graph.NodeSkipped          // it may go on, see cutOff
	if status == graph.NodeReady || Final(status) && !cut { // its join is asked no more: a new life begins with the first value
		st.Context = bson.RawValue{}
	}
	if s.plan(i, ""); (news || hung) && Root(st) {
		s.plan(i, DoAlert)
	}
	for _, k := range s.children[i] {
		s.dirty[k] = true
	}
}

// plan notes something to be done about a node, in the place of what this decision has planned
// for it before. Of a node without a task only the record is stored.
func (s *step) plan(i int, do string) {
	if do != DoAlert && !flowspec.HasTask(&s.Nodes[i]) {
		do = ""
	}
	at, of := s.Trimmed+i, i
	p := graph.Planned{ID: planID(s.Rev, at), Node: at, Do: do, Life: s.States[i].Life}
	k, there := s.plans[of]
	switch { // an alert and an action on the task take no place from each other
	case !there || do == "":
	case do == DoAlert && s.Planned[k].Do != "" && s.Planned[k].Do != DoAlert:
		of, p.ID = alertOf(i), p.ID+planAlert
		k, there = s.plans[of]
	case do == DoAbort && (s.Planned[k].Do == DoReset || s.Planned[k].Do == DoRestart): // its new life begins, and ends
		s.Planned[k].Do = DoReset
		of, p.ID = abortOf(i), p.ID+planAbort
		k, there = s.plans[of]
	case do != DoAlert && s.Planned[k].Do == DoAlert:
		s.Planned[k].ID += planAlert
		s.plans[alertOf(i)], there = k, false
	}
	switch {
	case !there:
		s.plans[of] = len(s.Planned)
		s.Planned = append(s.Planned, p)
		return
	case do == "":
		return
	case do == DoRelease && s.Planned[k].Do == DoReset: // its new life need not wait
		p.Do = DoRestart
	}
	s.Planned[k] = p
}

// Runs reports whether the plan starts the node with arguments that refer to outputs, and is still
// valid.
func Runs(f *graph.Flow, p *graph.Planned) bool {
	if !OfNode(p) {
		return false
	}
	i := Place(f, p)
	st := &f.States[i]
	return (p.Do == DoRelease || p.Do == DoRestart) && (f.Nodes[i].Args != "" || f.Nodes[i].Each != nil) && st.Status == graph.NodeReady && st.Life == p.Life
}

// planAlert ends the id of an alert beside another plan about the same node, and alertOf is its place among the plans.
// planAbort and abortOf are the same for an abort of a life that begins in the same decision. planDrop ends the id of what
// is planned about the life before that.
const planAlert, planAbort, planDrop = "-alert", "-abort", "-drop"

func alertOf(node int) int { return -1 - 2*node }
func abortOf(node int) int { return -2 - 2*node }

func planID(rev int64, node int) string { return strconv.FormatInt(rev, 10) + "-" + strconv.Itoa(node) }

// judge judges what is dirty.
func (s *step) judge() {
	for i := 0; i < len(s.Nodes); i++ {
		if !s.dirty[i] || s.err != nil {
			continue
		}
		s.dirty[i] = false // a parent comes before it
		closed := s.Closed
		if s.decide(i); s.Closed != closed {
			i = -1 // those before it do not run either
		}
	}
}

// finish judges what is dirty, and says what the whole flow has become.
func (s *step) finish() (*graph.Flow, error) {
	if s.judge(); s.err != nil {
		return nil, s.err
	}
	ready, runs, before := false, false, s.Status
	if s.Kind != graph.KindStream { // whose due_at is for nodes that are appended
		s.DueAt = time.Time{}
	}
	for i := range s.States {
		switch st := &s.States[i]; {
		case !st.DueAt.IsZero():
			s.DueAt = clock.Sooner(s.DueAt, st.DueAt)
		case st.Status != graph.NodeReady:
			continue
		case s.Nodes[i].Flow == nil: // the end of a flow is told, and not looked for
			runs = true
		}
		ready = true
	}
	if !runs {
		s.RunningAt = time.Time{}
	}
	switch {
	case ready:
		s.Status = graph.StatusRunning
		if runs && s.RunningAt.IsZero() {
			s.RunningAt = s.now
		}
	case s.Kind == graph.KindStream:
		s.rest()
	case s.States[len(s.States)-1].Status == graph.NodePending:
		s.Status = graph.StatusPending
	case s.EndedAt.IsZero():
		s.over()
	}
	if !s.Closed {
		s.Reason = s.why()
	}
	s.refill()
	s.tell(before)
	s.UpdatedAt = s.now
	if len(s.Planned) > 0 && s.PlannedAt.IsZero() {
		s.PlannedAt = s.now
	}
	return s.Flow, nil
}

// over ends the flow. Tasks of nodes that nobody runs any more do not stay behind: also one that
// its join made PENDING for good waits.
func (s *step) over() {
	s.Status, s.EndedAt, s.DeleteAt = graph.StatusFinish, s.now, s.now.Add(Retention)
	for i := range s.States {
		if s.States[i].Status == graph.NodePending {
			s.plan(i, DoAbort)
		}
	}
}

// why names the first node that waits for a person; "" = none does, or nobody waits any more.
func (s *step) why() string {
	if s.Status == graph.StatusFinish {
		return ""
	}
	for i := range s.States {
		if st := &s.States[i]; st.Status == graph.NodePending {
			return fmt.Sprintf("node %s: %s", s.Nodes[i].ID, st.Reason)
		}
	}
	return ""
}

// decide judges one node that waits.
func (s *step) decide(i int) {
	st := &s.States[i]
	if st.Status != graph.NodeWait && (st.Status != graph.NodePending || st.Own) {
		return
	}
	if s.Kind == graph.KindStream {
		s.next(i)
		return
	}
	if s.Closed {
		s.skip(i, s.Reason)
		return
	}
	j, err := judge(s.Flow, i, s.in)
	if gone := (*GoneError)(nil); errors.As(err, &gone) {
		s.fail(i, gone)
		s.plan(i, DoAbort)
		return
	}
	if lacks := (*NoJoinError)(nil); errors.As(err, &lacks) {
		s.leave(i)
		return
	}
	if err != nil {
		s.err = err
		return
	}
	st.Context, st.DueAt = j.context, time.Time{}
	switch j.verdict {
	case graph.NodeReady:
		s.start(i, DoRelease)
	case graph.NodeSkipped:
		s.skip(i, j.reason)
	case graph.NodePending:
		st.Own = j.final
		s.set(i, graph.NodePending, j.reason)
	default:
		s.set(i, graph.NodeWait, "")
	}
}

// skip ends a node that does not run, and its task.
func (s *step) skip(i int, reason string) {
	s.set(i, graph.NodeSkipped, reason)
	s.plan(i, DoAbort)
}

// close ends the flow early: what runs is cancelled, what waits does not run, and what waits for a person has failed.
func (s *step) close(reason string) {
	s.Closed, s.Reason = true, reason
	if s.Kind == graph.KindStream { // what waits goes on when somebody opens it
		s.abort()
		return
	}
	for i := range s.States {
		switch st := &s.States[i]; {
		case st.Status == graph.NodeReady && !flowspec.HasTask(&s.Nodes[i]): // there is nobody to tell of its end
			s.settle(i, graph.NodeError, reason)
		case st.Status == graph.NodeReady:
			s.plan(i, DoAbort)
		case st.Own && st.Status == graph.NodePending && s.in.works(s.Flow, i): // its end is waited for, too
			s.settle(i, graph.NodeReady, "")
			s.plan(i, DoAbort)
		case st.Own && st.Status == graph.NodePending:
			s.settle(i, graph.NodeError, st.Reason)
			s.plan(i, DoAbort)
		default:
			s.dirty[i] = true
		}
	}
}

// settle gives a node a status that no person has to decide about.
func (s *step) settle(i int, status graph.NodeStatus, reason string) {
	s.States[i].Own = false
	s.set(i, status, reason)
}
