package flow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/follow"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Event is a change of a node of a flow, or of the flow itself.
type Event struct {
	At     time.Time
	Node   string           // "" = the status or the reason of the flow itself changed
	Status graph.NodeStatus // of the node
	Reason string           // of the status
	Life   int64            // of the node: how often a person has restarted it
	Flow   graph.Status     // of the flow after the decision that made this change
}

// Watch returns the events of a flow until the flow is FINISH or ctx ends. The first events describe
// the present state: one for each node that has left WAIT, then one for the flow. After that each
// change of a node is one event, in order. RUNNING is not an event, because it is a status of the task.
// The first event of a node of a stream is its link to the chain.
//
// Events come from a change stream. After a broken connection Watch resumes where it stopped. Without
// a change stream, Watch reads the flow once a second and returns only the last of several changes of
// a node within that second. This happens if the deployment has no change streams, or if other watchers hold
// all seats (two for flows). After an interruption so long that the server has lost changes, Watch also
// returns only the last change of each node.
//
// Watch returns only what a majority has, so a failover undoes no event.
//
// The loop ends after the first error: [model.ErrNotFound], the cause of ctx, or a refusal by the
// database. Once the loop has begun, Watch waits while the database is unavailable.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Watch(ctx context.Context, id string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		left := false // the caller has left the loop, perhaps because ctx ended
		w := &watch{Flows: f, id: id, yield: func(e Event, err error) bool {
			left = left || !yield(e, err)
			return !left
		}}
		if err := w.run(ctx); err != nil && !left && !errors.Is(err, errStopped) {
			yield(Event{}, fmt.Errorf("watching the flow %s: %w", id, err))
		}
	}
}

const (
	// pollEvery is how often a flow is read without a stream, seatRetry for how long until a seat is
	// asked for again.
	pollEvery, seatRetry = time.Second, 30 * time.Second
	// perLeft is how many nodes that have left the window of a stream are read at a time.
	perLeft = 500
)

// errStopped ends a watch whose caller has left the loop, or whose flow is over.
var errStopped = errors.New("it is over")

// watch is one loop over the events of a flow. One goroutine uses it.
type watch struct {
	*Flows
	id    string
	yield func(Event, error) bool
	doc   *graph.Flow // as it was told; nil = nothing was told
}

// run tells what happens until it is over.
func (w *watch) run(ctx context.Context) error {
	if err := w.store.Prepare(ctx); err != nil {
		return err
	}
	f := follow.Follower[*store.FlowStream]{Store: w.store, Of: []string{"/flows"}, Open: w.open, Take: w.take, Ends: ends}
	for {
		err := f.Run(ctx, nil)
		if errors.As(err, new(*model.NoStreamError)) {
			err = w.poll(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case err != nil: // a new stream is opened, and the flow is read
			clock.Pause(ctx, pollEvery)
		}
	}
}

// ends says that a flow is over, or gone, or that nobody listens any more.
func ends(err error) bool { return errors.Is(err, errStopped) || errors.Is(err, store.ErrNoFlow) }

// final says whether to try again is useless.
func final(err error) bool {
	return ends(err) || err != nil && !store.EventsLost(err) && !store.Unreachable(err)
}

// poll reads the flow again and again, until it is time to ask for a seat.
func (w *watch) poll(ctx context.Context) error {
	for range int(seatRetry / pollEvery) {
		if err := w.read(ctx); err != nil {
			return err
		}
		clock.Pause(ctx, pollEvery)
	}
	return nil
}

// open opens a stream. One that goes on from no place tells nothing of what came before it was open: the
// flow is read.
func (w *watch) open(ctx context.Context, token bson.Raw) (*store.FlowStream, error) {
	stream, err := w.store.Flows.Watch(ctx, w.id, token)
	if err != nil || token != nil {
		return stream, err
	}
	if err := w.read(ctx); err != nil {
		_ = stream.Close(ctx) // else the server forgets it in time
		return nil, err
	}
	return stream, nil
}

// take tells what the stream says next.
func (w *watch) take(ctx context.Context, stream *store.FlowStream) error {
	change, ok, err := stream.Next(ctx)
	if err != nil || !ok {
		return err
	}
	return w.changed(ctx, change)
}

// changed tells of one decision.
func (w *watch) changed(ctx context.Context, change store.FlowChange) error {
	if change.Gone {
		return store.ErrNoFlow
	}
	rev, status, reason, trimmed := w.doc.Rev, w.doc.Status, w.doc.Reason, w.doc.Trimmed
	var events []Event
	err := change.Apply(w.doc, func(i int, was graph.State) {
		if e, news := w.event(i, was, w.doc.States[i]); news {
			events = append(events, e)
		}
	})
	if errors.Is(err, store.ErrUnclear) {
		w.doc.Rev, w.doc.Status, w.doc.Reason, w.doc.Trimmed = rev, status, reason, trimmed // the flow as it is now is news
		return w.read(ctx)
	}
	if err != nil {
		return err
	}
	return w.tellAll(events, status != w.doc.Status || reason != w.doc.Reason)
}

// event is the change of a node, if it is one that people see.
func (w *watch) event(i int, was, is graph.State) (e Event, news bool) {
	return Event{At: is.At, Node: w.doc.Nodes[i].ID, Status: is.Status, Reason: is.Reason, Life: is.Life}, differ(was, is)
}

// differ says whether people see a difference between two states.
func differ(was, is graph.State) bool {
	return is.Status != was.Status || is.Life != was.Life || is.Reason != was.Reason
}

// present is the flow as it is now, for a majority, too. A failover may undo anything else: another decision would have
// the same rev then, which says nothing new.
func (w *watch) present(ctx context.Context) (*graph.Flow, error) {
	for {
		doc, err := w.Get(ctx, w.id)
		if err != nil {
			return nil, err
		}
		if stays, err := w.store.Flows.Stays(ctx, doc); err != nil || stays {
			return doc, err
		}
		if !clock.Pause(ctx, 10*time.Millisecond) { // somebody has decided meanwhile
			return nil, context.Cause(ctx)
		}
	}
}

// read reads the flow and tells what is new in it.
func (w *watch) read(ctx context.Context) error {
	doc, err := w.present(ctx)
	if err == nil {
		err = w.left(ctx, doc)
	}
	if err != nil {
		return err
	}
	return w.became(doc)
}

// left tells of the nodes that have left the window of a stream since it was told of last, in the order
// of the chain. Some of them were never seen in it.
func (w *watch) left(ctx context.Context, doc *graph.Flow) error {
	for w.doc != nil && w.doc.Trimmed < doc.Trimmed {
		nodes, err := w.store.Nodes.Chain(ctx, w.id, int64(w.doc.Trimmed), int64(doc.Trimmed), perLeft)
		if err != nil {
			return err
		}
		last := doc.Trimmed
		if len(nodes) == perLeft {
			last = int(nodes[perLeft-1].Position)
		}
		var events []Event
		for _, n := range nodes {
			e := Event{At: n.At, Node: n.Node, Status: n.Status, Reason: n.Reason, Life: n.Life}
			if i := int(n.Position) - w.doc.Trimmed - 1; i >= len(w.doc.States) || differ(w.doc.States[i], graph.State{Status: n.Status, Reason: n.Reason, Life: n.Life}) {
				events = append(events, e)
			}
		}
		gone := min(last-w.doc.Trimmed, len(w.doc.Nodes))
		w.doc.Trimmed, w.doc.Nodes, w.doc.States = last, w.doc.Nodes[gone:], w.doc.States[gone:]
		if err := w.tellAll(events, false); err != nil {
			return err
		}
	}
	return nil
}

// became tells what is new in the flow since it was told of last.
func (w *watch) became(doc *graph.Flow) error {
	before := w.doc
	if before != nil && before.Rev >= doc.Rev {
		return nil
	}
	w.doc = doc
	known := map[string]graph.State{}
	if before != nil {
		for i := range before.States {
			known[before.Nodes[i].ID] = before.States[i]
		}
	}
	var events []Event
	for i, is := range doc.States {
		was, there := known[doc.Nodes[i].ID]
		if !there && (before == nil || doc.Kind == "") { // else it was linked to a stream meanwhile
			was.Status = graph.NodeWait
		}
		if e, news := w.event(i, was, is); news {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return w.tellAll(events, before == nil || before.Status != doc.Status || before.Reason != doc.Reason)
}

// tellAll tells of nodes, and of the flow itself where that changed, and says whether it is over.
func (w *watch) tellAll(events []Event, itself bool) error {
	if itself {
		events = append(events, Event{At: w.doc.UpdatedAt, Reason: w.doc.Reason})
	}
	for _, e := range events {
		e.Flow = w.doc.Status
		if !w.yield(e, nil) {
			return errStopped
		}
	}
	if w.doc.Status == graph.StatusFinish {
		return errStopped
	}
	return nil
}
