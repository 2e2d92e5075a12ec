package flow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// perRead is how many tasks one command reads.
const perRead = 1000

// making is a decision about a flow that may need outputs of nodes: of those that arguments refer
// to, and of those that conditions and custom joins look at.
type making struct {
	flow    *graph.Flow
	decide  func(in *flowplan.Inputs, now time.Time) (*graph.Flow, error)
	after   *graph.Flow
	err     error
	outputs map[int]bson.RawValue
	missing []int
}

// make makes decisions, and reads the outputs that they need, those of all of them together.
func (f *Flows) make(ctx context.Context, all []*making, now time.Time) error {
	for {
		lacking := map[string][]func(bson.RawValue){} // by task
		for _, m := range all {
			if m.after != nil || m.err != nil {
				continue
			}
			f.try(m, now)
			for _, i := range m.missing {
				id := taskID(m.flow, i)
				lacking[id] = append(lacking[id], func(v bson.RawValue) { m.outputs[i] = v })
			}
		}
		if len(lacking) == 0 {
			return nil
		}
		ids := make([]string, 0, len(lacking))
		for id := range lacking {
			ids = append(ids, id)
		}
		for some := range slices.Chunk(ids, perRead) {
			tasks, err := f.store.Rules.LastLives(ctx, some)
			if err != nil {
				return fmt.Errorf("reading outputs of nodes: %w", err)
			}
			for _, id := range some {
				var output bson.RawValue
				if t := tasks[id]; t != nil {
					output = t.Result
				}
				for _, take := range lacking[id] {
					take(output)
				}
			}
		}
	}
}

// try makes a decision with the outputs that are known; missing are those that it lacks.
func (f *Flows) try(m *making, now time.Time) {
	if m.outputs == nil {
		m.outputs = map[int]bson.RawValue{}
	}
	m.missing = nil
	in := &flowplan.Inputs{Outputs: m.outputs, Joins: f.joins}
	after, err := m.decide(in, now)
	if err != nil {
		m.err = err
		return
	}
	known := len(m.flow.Planned)
	for k := known; k < len(after.Planned) && in.Ready(); k++ {
		p := &after.Planned[k]
		v := &after.Nodes[p.Node]
		if p.Do != graph.Release && p.Do != graph.Restart || v.Args == "" || p.Args.Type != 0 {
			continue
		}
		args, lacks, err := fill(m, after, v.Args)
		switch {
		case len(lacks) > 0:
			m.missing = append(m.missing, lacks...)
		case err != nil: // its task cannot run; what hangs on it goes on, or does not
			if after, err = flowplan.Fail(after, p.Node, err.Error(), in, now); err != nil {
				m.err = err
				return
			}
			k = known - 1 // more may have become ready
		default:
			p.Args = args
		}
	}
	for i := range in.Missing {
		m.missing = append(m.missing, i)
	}
	if len(m.missing) == 0 {
		m.after = after
	}
}

// fill puts the outputs of nodes into the arguments of a node.
func fill(m *making, after *graph.Flow, stored string) (args bson.RawValue, lacks []int, err error) {
	template, err := flowspec.Template(stored)
	if err != nil {
		return args, nil, err
	}
	places := map[string]int{}
	for _, node := range flowspec.Refs(template) {
		i, err := place(after, node)
		if err != nil {
			return args, nil, err
		}
		places[node] = i
		if _, known := m.outputs[i]; !known && after.States[i].Status == graph.NodeSuccess {
			lacks = append(lacks, i)
		}
	}
	if len(lacks) > 0 {
		return args, lacks, nil
	}
	args, err = flowspec.Resolve(template, func(node string) bson.RawValue { return m.outputs[places[node]] })
	return args, nil, err
}

// taskID is the id of the task of a node.
func taskID(doc *graph.Flow, i int) string {
	v := &doc.Nodes[i]
	return model.TaskID(doc.Tenant, v.Type, flowspec.TaskKey(doc.Key, v.ID))
}
