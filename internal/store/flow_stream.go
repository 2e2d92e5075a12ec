package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
)

// FlowStream returns the decisions about one flow, each as the fields that it changed, in their
// order.
type FlowStream struct{ cs *mongo.ChangeStream }

// FlowChange is one decision about a flow, or its deletion.
type FlowChange struct {
	Gone    bool // somebody deleted the flow
	set     bson.Raw
	removed []string
}

// Watch opens a stream of the decisions about a flow: those after the given token (nil = from now
// on). The caller holds a seat, see [Seats.AcquireSubscription].
func (s *Flows) Watch(ctx context.Context, id string, token bson.Raw) (*FlowStream, error) {
	// Without a first batch the server answers at once, see [Store.Events].
	o := options.ChangeStream().SetMaxAwaitTime(StreamAwait).SetBatchSize(0)
	if token != nil {
		o.SetResumeAfter(token)
	}
	cs, err := s.durable(s.flows).Watch(ctx, mongo.Pipeline{bson.D{d("$match", bson.D{
		d("documentKey._id", id),
		d("$or", bson.A{
			bson.D{d("operationType", "delete")},
			bson.D{d("operationType", "update"), d("updateDescription.updatedFields.rev", exists)},
		}),
	})}}, o)
	if err != nil {
		return nil, explain(err, "opening a change stream")
	}
	return &FlowStream{cs}, nil
}

// Next waits for the next decision. ok is false if there was none for [StreamAwait].
func (st *FlowStream) Next(ctx context.Context) (c FlowChange, ok bool, err error) {
	if !st.cs.TryNext(ctx) {
		switch err := st.cs.Err(); {
		case err != nil:
			return c, false, explain(err, "waiting for the change stream")
		case st.cs.ID() == 0:
			return c, false, ErrStreamEnded
		}
		return c, false, nil
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

// Token is the place in the stream up to which everything was returned.
func (st *FlowStream) Token() bson.Raw { return st.cs.ResumeToken() }

// Close ends the stream.
func (st *FlowStream) Close(ctx context.Context) error { return st.cs.Close(ctx) }

// Apply makes the flow, and the states of its nodes, what the decision made of them. The nodes that
// it decided about are passed to decided, with the states that they had. A flow that knows the
// decision stays as it is.
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
	states := map[int]bson.D{} // what changes in each
	at := func(path string) (node int, field string, ok bool) {
		path, ok = strings.CutPrefix(path, "states.")
		place, field, _ := strings.Cut(path, ".")
		node, err := strconv.Atoi(place)
		return node, field, ok && err == nil && node < len(f.States)
	}
	for _, e := range fields {
		v := e.Value()
		switch name := e.Key(); name {
		case "status":
			f.Status = graph.Status(v.StringValue())
		case "reason":
			f.Reason = v.StringValue()
		case "updated_at":
			f.UpdatedAt = v.Time().UTC()
		case "states": // how a server may describe the change of many
			values, err := v.Array().Values()
			if err != nil {
				return fmt.Errorf("reading a change of the flow %s: %w", f.ID, err)
			}
			for i, v := range values[:min(len(values), len(f.States))] {
				states[i] = bson.D{d("", v)}
			}
		default:
			if i, field, ok := at(name); ok {
				states[i] = append(states[i], d(field, v))
			}
		}
	}
	for _, name := range c.removed {
		if name == "reason" {
			f.Reason = ""
		} else if i, field, ok := at(name); ok {
			states[i] = append(states[i], d(field, nil))
		}
	}
	for _, i := range slices.Sorted(maps.Keys(states)) {
		was := f.States[i]
		if f.States[i], err = changedState(was, states[i]); err != nil {
			return fmt.Errorf("reading a change of the flow %s, node %s: %w", f.ID, f.Nodes[i].ID, err)
		}
		decided(i, was)
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
