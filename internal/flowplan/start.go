package flowplan

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// Begin lets the first node of a new flow start, if no worker runs it: a task may run from the
// start.
func Begin(f *graph.Flow, now time.Time) (*graph.Flow, error) {
	if v := &f.Nodes[0]; flowspec.HasTask(v) && v.Flow == nil && v.Each == nil {
		return f, nil
	}
	s := goOn(f, &Inputs{}, now)
	s.set(0, graph.NodeWait, "")
	s.start(0, DoRelease)
	f, err := s.finish()
	if err != nil || f.States[0].Status != graph.NodeReady {
		return f, err
	}
	if why := cannotStart(f, now); why != nil {
		return Fail(f, 0, why.Error(), &Inputs{}, now)
	}
	return f, nil
}

// cannotStart says why the arguments of a first node do not let its elements, or its flow, start; nil = they do. No
// output is in them.
func cannotStart(f *graph.Flow, now time.Time) error {
	v, none := &f.Nodes[0], func(string) bson.RawValue { return bson.RawValue{} }
	switch {
	case v.Each != nil:
		items, err := flowspec.Elements(v, none)
		if err == nil {
			_, err = flowspec.ElementArgs(v, items, none)
		}
		return err
	case v.Flow != nil && v.Args != "":
		args, err := flowspec.Template(v.Args)
		if err == nil {
			args, err = flowspec.Resolve(args, none)
		}
		if err == nil {
			_, err = flowspec.Child(f, 0, args, now)
		}
		if err != nil {
			return fmt.Errorf("its flow cannot start: %w", err)
		}
	}
	return nil
}

// start lets a node start: its task may run (do is how), it waits for a time, or it asks a person.
func (s *step) start(i int, do string) {
	if a := s.Nodes[i].Ask; a != nil {
		s.States[i].Own = true
		s.set(i, graph.NodePending, "it asks: "+a.Title)
		return
	}
	s.set(i, graph.NodeReady, "")
	if s.Nodes[i].Each != nil {
		s.startElements(i, do)
		return
	}
	if flowspec.HasTask(&s.Nodes[i]) {
		s.plan(i, do)
		return
	}
	var gone error
	at, err := flowspec.DueAt(&s.Nodes[i], s.now, s.outputOf(&gone))
	switch err = cmp.Or(gone, err); {
	case !s.in.Ready(): // the decision is made again with what it lacks
	case err != nil:
		s.fail(i, err)
	case !at.After(s.now):
		s.settle(i, graph.NodeSuccess, "")
	default:
		s.States[i].DueAt = at
	}
}

// outputOf returns outputs of nodes; gone gets the error of one that no longer exists.
func (s *step) outputOf(gone *error) func(node string) bson.RawValue {
	return func(node string) (out bson.RawValue) {
		for i := range s.Nodes {
			if s.Nodes[i].ID == node && s.States[i].Status == graph.NodeSuccess {
				var err error
				out, err = s.in.output(s.Flow, i)
				*gone = cmp.Or(*gone, err)
			}
		}
		return out
	}
}

// fail has a node fail that cannot start.
func (s *step) fail(i int, why error) {
	reason := why.Error()
	var bad *model.InvalidError
	if errors.As(why, &bad) {
		reason = bad.Field + " " + bad.Reason
	}
	s.end(End{Node: i, Status: model.StatusFailure, ErrorInfo: reason})
}

// timesUp ends the nodes whose time has come, and has those judged whose joins were left to this engine. alone says that
// so far nothing else is to be decided.
func (s *step) timesUp(alone bool) {
	lacking := -1
	for i := range s.States {
		st := &s.States[i]
		switch late := s.now.Sub(st.DueAt); {
		case st.DueAt.IsZero() || late < 0:
			continue
		case st.Status == graph.NodeReady:
			s.settle(i, graph.NodeSuccess, "")
		case s.in.Joins[s.Nodes[i].Custom] != nil:
			s.dirty[i] = true
		case late >= leftTurns: // no engine has it
			st.DueAt = s.now.Add(leftPause)
		default:
			lacking = i
			continue
		}
		alone = false
	}
	if alone && lacking >= 0 {
		s.err = &NoJoinError{Flow: s.ID, Node: s.Nodes[lacking].ID, Join: s.Nodes[lacking].Custom}
	}
}

// A join that this process does not have is due for leftTurns, so that each engine has its turn. That is longer than a
// join may fail, see [Inputs.Impatient]. Then it is due again after leftPause: engines read what is due at each look.
const leftTurns, leftPause = 2 * time.Minute, 2 * time.Minute

// leave leaves the join of a node to engines that have it. Turns that they have already go on.
func (s *step) leave(i int) {
	s.set(i, graph.NodeWait, "")
	if st := &s.States[i]; st.DueAt.IsZero() || st.DueAt.After(s.now) {
		st.DueAt = s.now
	}
}
