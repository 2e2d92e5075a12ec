package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
)

// FlowStream returns the decisions about one flow, each as the fields that it changed, in their
// order.
type FlowStream struct{ watched }

// FlowChange is one decision about a flow, or its deletion.
type FlowChange struct {
	Gone    bool // somebody deleted the flow
	set     bson.Raw
	removed []string
}

// Watch opens a stream of the decisions about a flow: those after the given token (nil = from now
// on). The caller holds a seat, see [Seats.AcquireSubscription].
func (s *Flows) Watch(ctx context.Context, id string, token bson.Raw) (*FlowStream, error) {
	cs, err := watch(ctx, s.durable(s.flows), token, bson.D{d("$match", bson.D{
		d("documentKey._id", id),
		d("$or", bson.A{
			bson.D{d("operationType", "delete")},
			bson.D{d("operationType", "update"), d("updateDescription.updatedFields.rev", exists)},
		}),
	})})
	if err != nil {
		return nil, err
	}
	return &FlowStream{cs}, nil
}

// Next waits for the next decision. ok is false if there was none for [StreamAwait].
func (st *FlowStream) Next(ctx context.Context) (c FlowChange, ok bool, err error) {
	if ok, err = st.next(ctx); !ok {
		return c, false, err
	}
	var doc struct {
		Kind   string `bson:"operationType"`
		Update struct {
			Set     bson.Raw `bson:"updatedFields"`
			Removed []string `bson:"removedFields"`
		} `bson:"updateDescription"`
	}
	if err := st.cs.Decode(&doc); err != nil {
		return c, false, explain(err, "reading a change event")
	}
	return FlowChange{Gone: doc.Kind == "delete", set: doc.Update.Set, removed: doc.Update.Removed}, true, nil
}

// ErrUnclear is returned for a change that does not say what became of the nodes: read the flow.
var ErrUnclear = errors.New("the change of the flow is not clear")

// Apply makes the flow, and the states of its nodes, what the decision made of them. The nodes that
// it decided about are passed to decided, with the states that they had: a node of a stream that was
// linked was INIT. A flow that knows the decision stays as it is.
func (c FlowChange) Apply(f *graph.Flow, decided func(node int, was graph.State)) error {
	rev, _ := c.set.Lookup("rev").AsInt64OK()
	if rev <= f.Rev {
		return nil
	}
	f.Rev = rev
	fields, err := c.set.Elements()
	if err != nil {
		return fmt.Errorf("reading a change of the flow %s: %w", f.ID, err)
	}
	w := window{Flow: f, states: map[int]bson.D{}}
	for _, e := range fields {
		v := e.Value()
		switch name := e.Key(); name {
		case "status":
			f.Status = graph.Status(v.StringValue())
		case "reason":
			f.Reason = v.StringValue()
		case "updated_at":
			f.UpdatedAt = v.Time().UTC()
		case "trimmed":
			trimmed, _ := v.AsInt64OK()
			w.gone, f.Trimmed = int(trimmed)-f.Trimmed, int(trimmed)
		default:
			err = w.take(name, v)
		}
		if err != nil {
			return fmt.Errorf("reading a change of the flow %s, %s: %w", f.ID, e.Key(), err)
		}
	}
	for _, name := range c.removed {
		if name == "reason" {
			f.Reason = ""
		} else if i, field, ok := w.state(name); ok {
			w.states[i] = append(w.states[i], d(field, nil))
		}
	}
	if w.moved() {
		return w.move(decided)
	}
	for _, i := range slices.Sorted(maps.Keys(w.states)) {
		was := f.States[i]
		if f.States[i], err = changedState(was, w.states[i]); err != nil {
			return fmt.Errorf("reading a change of the flow %s, node %s: %w", f.ID, f.Nodes[i].ID, err)
		}
		decided(i, was)
	}
	return nil
}

// window is the nodes of a flow, and what changes in them.
type window struct {
	*graph.Flow
	states map[int]bson.D // what changes in the state of each node

	gone              int // nodes of a stream that have left the window
	newNodes          []graph.Vertex
	newStates         []graph.State
	allNodes, allSeen bool // the new ones are all that are left
}

// take notes a change of the lists of nodes and states: of one entry, of a field of one, an entry
// behind the last one, or a whole list.
func (w *window) take(name string, v bson.RawValue) error {
	switch list, place, _ := strings.Cut(name, "."); {
	case name == "nodes":
		w.allNodes = true
		return decodeList(v, &w.newNodes)
	case name == "states":
		w.allSeen = true
		return decodeList(v, &w.newStates)
	case list == "nodes":
		var n graph.Vertex
		w.newNodes = append(w.newNodes, n)
		return codec.Decode(v.Value, &w.newNodes[len(w.newNodes)-1])
	case list == "states" && place == strconv.Itoa(len(w.States)+len(w.newStates)):
		w.newStates = append(w.newStates, graph.State{})
		return codec.Decode(v.Value, &w.newStates[len(w.newStates)-1])
	}
	if i, field, ok := w.state(name); ok {
		w.states[i] = append(w.states[i], d(field, v))
	}
	return nil
}

// state is the node whose state a path names, and the field of it; "" = the whole state.
func (w *window) state(path string) (node int, field string, ok bool) {
	path, ok = strings.CutPrefix(path, "states.")
	place, field, _ := strings.Cut(path, ".")
	node, err := strconv.Atoi(place)
	return node, field, ok && err == nil && node < len(w.States)
}

// moved says whether nodes came or went.
func (w *window) moved() bool {
	return w.gone > 0 || w.newNodes != nil || w.newStates != nil || w.allNodes || w.allSeen
}

// move replaces the nodes of a stream, or adds some.
func (w *window) move(decided func(node int, was graph.State)) error {
	was := make(map[string]graph.State, len(w.Nodes))
	for i := range w.Nodes {
		was[w.Nodes[i].ID] = w.States[i]
	}
	nodes, states := w.newNodes, w.newStates
	if !w.allNodes {
		nodes = append(w.Nodes, nodes...)
	}
	if !w.allSeen {
		states = append(w.States, states...)
	}
	if len(nodes) != len(states) || len(w.states) > 0 || w.gone > 0 && (!w.allNodes || !w.allSeen) {
		return ErrUnclear
	}
	w.Nodes, w.States = nodes, states
	for i := range nodes {
		before, known := was[nodes[i].ID]
		if !known {
			before = graph.State{Status: graph.NodeInit}
		}
		decided(i, before)
	}
	return nil
}

func decodeList[T any](v bson.RawValue, into *[]T) error {
	values, err := v.Array().Values()
	if err != nil {
		return err
	}
	*into = make([]T, len(values))
	for i, v := range values {
		if err := codec.Decode(v.Value, &(*into)[i]); err != nil {
			return err
		}
	}
	return nil
}

// changedState is a state after a change of it as a whole (field ""), or of some of its fields; nil
// removes one.
func changedState(was graph.State, change bson.D) (is graph.State, err error) {
	if v, whole := change[0].Value.(bson.RawValue); whole && change[0].Key == "" {
		return is, codec.Decode(v.Value, &is)
	}
	fields, err := fieldsOf(&was)
	if err != nil {
		return is, err
	}
	var doc bson.D
	for _, e := range fields {
		if !slices.ContainsFunc(change, func(c bson.E) bool { return c.Key == e.Key() }) {
			doc = append(doc, d(e.Key(), e.Value()))
		}
	}
	for _, c := range change {
		if c.Value != nil {
			doc = append(doc, c)
		}
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return is, err
	}
	return is, codec.Decode(raw, &is)
}
