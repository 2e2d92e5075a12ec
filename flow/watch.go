package flow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
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
// The loop ends after the first error: [ErrNotFound], the cause of ctx, or a refusal by the
// database. Once the loop has begun, Watch waits while the database is unavailable.
func (f *Flows) Watch(ctx context.Context, id string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		left := false // the caller has left the loop, perhaps because ctx ended
		w := &watch{Flows: f, id: id, holder: "flow/" + rand.Text(), pause: firstReopen, yield: func(e Event, err error) bool {
			left = left || !yield(e, err)
			return !left
		}}
		err := w.run(ctx)
		w.leaveSeat(ctx)
		if err != nil && !left && !errors.Is(err, errStopped) {
			yield(Event{}, fmt.Errorf("watching the flow %s: %w", id, err))
		}
	}
}

const (
	// longestStream is how long one change stream is kept before it is opened again where it was.
	// Its context needs a deadline: without one, the driver would lay the client's own timeout,
	// which is for calls, over each wait for an event.
	longestStream = 24 * time.Hour
	// seatRenewal is how often a seat is extended; a wait for an event may come on top of it.
	seatRenewal = store.SeatLease - store.StreamAwait - 10*time.Second
	// pollEvery is how often a flow is read without a stream, seatRetry how often a seat is asked
	// for then.
	pollEvery, seatRetry = time.Second, 30 * time.Second
	// firstReopen and lastReopen bound the pauses between tries after an error.
	firstReopen, lastReopen = 50 * time.Millisecond, 5 * time.Second
	// perLeft is how many nodes that have left the window of a stream are read at a time.
	perLeft = 500
	// seatCall bounds a call about a seat, and the opening and closing of a stream.
	seatCall = 5 * time.Second
)

// errStopped ends a watch whose caller has left the loop, or whose flow is over.
var errStopped = errors.New("it is over")

// watch is one loop over the events of a flow. One goroutine uses it.
type watch struct {
	*Flows
	id    string
	yield func(Event, error) bool
	doc   *graph.Flow // as it was told; nil = nothing was told
	pause time.Duration

	holder         string
	seat           *store.Seat   // nil = none
	renewed, asked time.Duration // monotonic: the seat; a seat, in vain
}

// run tells what happens until it is over.
func (w *watch) run(ctx context.Context) error {
	if err := w.ready(ctx); err != nil {
		return err
	}
	w.asked = w.store.Local().Monotonic() - seatRetry
	topology, err := w.store.Topology(ctx)
	if err != nil {
		return err
	}
	for {
		err := w.keepSeat(ctx, topology.Subscriptions())
		if err == nil && w.seat != nil {
			err = w.follow(ctx)
		} else if err == nil {
			err = w.read(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case err != nil: // a new stream is opened, and the flow is read
			w.rest(ctx)
		case w.seat == nil:
			w.pause = firstReopen
			clock.Pause(ctx, pollEvery)
		}
	}
}

// final says whether to try again is useless.
func final(err error) bool {
	return errors.Is(err, errStopped) || errors.Is(err, ErrNotFound) || err != nil && !store.EventsLost(err) && !store.Unreachable(err)
}

// rest pauses after an error, ever longer.
func (w *watch) rest(ctx context.Context) {
	clock.Pause(ctx, w.pause/2+mathrand.N(w.pause))
	w.pause = min(2*w.pause, lastReopen)
}

// keepSeat takes a seat, or extends the one that it has. Without a free one it has none.
func (w *watch) keepSeat(ctx context.Context, streams bool) error {
	now := w.store.Local().Monotonic()
	if !streams || w.seat == nil && now-w.asked < seatRetry || w.seat != nil && now-w.renewed < seatRenewal {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, seatCall)
	defer cancel()
	if w.seat != nil {
		kept, err := w.store.Seats.Renew(ctx, w.seat, w.holder)
		if err != nil || kept {
			w.renewed = now
			return err
		}
		w.seat = nil // it lapsed, and somebody else was quicker
	}
	seat, err := w.store.Seats.AcquireSubscription(ctx, []string{"/flows"}, w.holder) // no type has a slash
	w.seat, w.renewed, w.asked = seat, now, now
	return err
}

func (w *watch) leaveSeat(ctx context.Context) {
	if w.seat == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatCall)
	defer cancel()
	_ = w.store.Seats.Release(ctx, w.seat, w.holder) // else it lapses
}

// follow opens streams, one after the other where the last one stopped, and tells what they say,
// until that fails or the seat is lost.
func (w *watch) follow(ctx context.Context) error {
	var token bson.Raw
	for {
		open, cancel := context.WithTimeout(ctx, seatCall)
		stream, err := w.store.Flows.Watch(open, w.id, token)
		cancel()
		if err == nil {
			token, err = w.tell(ctx, stream, token == nil)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err), store.EventsLost(err), token == nil, w.seat == nil:
			return err
		case err != nil:
			w.rest(ctx)
		}
	}
}

// tell tells what one stream says, and closes it. The token is where to go on. The error is nil when
// the stream was merely open for long enough, or the seat is lost. The first stream tells nothing of
// what came before it was open: the flow is read.
func (w *watch) tell(ctx context.Context, stream *store.FlowStream, first bool) (token bson.Raw, err error) {
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatCall)
		defer cancel()
		_ = stream.Close(call) // else the server forgets it in time
	}()
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, longestStream)
	defer cancel()
	if first {
		if err := w.read(ctx); err != nil {
			return nil, err
		}
	}
	for {
		change, ok, err := stream.Next(ctx)
		switch {
		case whole.Err() == nil && ctx.Err() != nil:
			return stream.Token(), nil
		case err != nil:
			return stream.Token(), err
		}
		w.pause = firstReopen
		if ok {
			if err := w.changed(ctx, change); err != nil {
				return stream.Token(), err
			}
		}
		if err := w.keepSeat(ctx, true); err != nil || w.seat == nil {
			return stream.Token(), err
		}
	}
}

// changed tells of one decision.
func (w *watch) changed(ctx context.Context, change store.FlowChange) error {
	if change.Gone {
		return ErrNotFound
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

// read reads the flow and tells what is new in it.
func (w *watch) read(ctx context.Context) error {
	doc, err := w.Get(ctx, w.id)
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
