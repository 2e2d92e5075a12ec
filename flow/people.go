package flow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tracing"
)

// Resolve ends a PENDING node as SUCCESS or ERROR for a person; remark describes what the person
// did. The same write decides about the nodes behind it, except for custom joins that this process does not have: an
// engine that has them decides about these. In a flow that is FINISH only the node changes.
// If the state of the flow forbids it, the error of this and of the other commands is a
// *[model.RefusedError].
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Resolve(ctx context.Context, id, node string, status graph.NodeStatus, remark string) (*graph.Flow, error) {
	if status != graph.NodeSuccess && status != graph.NodeError {
		return nil, input.Invalid("status", "is %q; want SUCCESS or ERROR", status)
	}
	if err := checkRemark(remark); err != nil {
		return nil, err
	}
	return f.change(ctx, "resolving a node of", id, node, func(doc *graph.Flow, i int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		return despiteJoins(in, func() (*graph.Flow, error) { return flowplan.Resolve(doc, i, status, remark, in, now) })
	})
}

// Answer ends a PENDING node that asks a person, as SUCCESS. The values, a JSON object, are the
// output of the node. The error names each field that is wrong. [Flows.Resolve] ends such a node
// without values.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Answer(ctx context.Context, id, node string, values any, remark string) (*graph.Flow, error) {
	if err := checkRemark(remark); err != nil {
		return nil, err
	}
	return f.change(ctx, "answering a node of", id, node, func(doc *graph.Flow, i int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		return despiteJoins(in, func() (*graph.Flow, error) { return flowplan.Answer(doc, i, values, remark, in, now) })
	})
}

// despiteJoins decides what a person has said, or about an end that was lost. A join behind it that fails is called once
// more. Then its node is PENDING, since nobody could end the node before it as long as that lasts.
func despiteJoins(in *flowplan.Inputs, decide func() (*graph.Flow, error)) (*graph.Flow, error) {
	after, err := decide()
	if failing := (*flowplan.JoinError)(nil); errors.As(err, &failing) {
		in.Impatient = true
		return decide()
	}
	return after, err
}

// Cancel ends a flow: running tasks are cancelled, waiting nodes become SKIPPED, and nodes that wait for a person
// become ERROR. The flow becomes FINISH when its last task has ended. Cancel changes nothing if the flow has ended.
// A stream is closed instead: its running tasks are cancelled, and what waits stays as it is until somebody opens it.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Cancel(ctx context.Context, id, remark string) (*graph.Flow, error) {
	if err := checkRemark(remark); err != nil {
		return nil, err
	}
	return f.change(ctx, "cancelling", id, "", func(doc *graph.Flow, _ int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		return flowplan.Cancel(doc, remark, in, now)
	})
}

// RetryFrom begins a new life of a node and of all nodes behind it. The node runs at once; the others
// wait for their parents again, and so do the nodes that an early end of the flow skipped. RetryFrom is refused while one
// of these nodes runs, or a worker runs its task. If ctx has a span, what runs again belongs to its trace.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) RetryFrom(ctx context.Context, id, node string) (*graph.Flow, error) {
	ctx = store.Outside(ctx) // the decision reads
	return f.change(ctx, "retrying from a node of", id, node, func(doc *graph.Flow, i int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		after, err := despiteJoins(in, func() (*graph.Flow, error) { return flowplan.RetryFrom(doc, i, in, now) })
		if err == nil && in.Ready() {
			err = f.noneRuns(ctx, doc, after)
		}
		if err != nil {
			return nil, err
		}
		if from := tracing.Of(ctx, now); from != nil || doc.Kind == graph.KindStream {
			after.Trace = from
		}
		return after, nil
	})
}

// noneRuns refuses new lives of nodes while a worker runs one of their tasks, which a person has retried or released.
func (f *Flows) noneRuns(ctx context.Context, before, after *graph.Flow) error {
	var ids []string
	places := map[string]int{}
	for i := range after.States {
		if id := taskID(after, i); id != "" && after.States[i].Life != before.States[i].Life {
			ids, places[id] = append(ids, id), i
		}
	}
	tasks, err := f.store.Tasks.LastLivesOf(ctx, ids, store.State)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if t, i := tasks[id], places[id]; t != nil && ofNode(t, after, i) && lifecycle.OpenExecutions(t) > 0 {
			return &flowplan.RefusedError{Flow: after.ID, Node: after.Nodes[i].ID, Reason: "a worker runs its task; cancel the task or wait"}
		}
	}
	return nil
}

// Explain returns sentences that describe why a node has its status, which nodes it waits for, and
// what would start it. Of a node that has left the document of its stream it says how and when it ended.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Explain(ctx context.Context, id, node string) ([]string, error) {
	for range maxTries {
		doc, err := f.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		i, missing := place(doc, node)
		if missing == nil {
			return flowplan.Explain(doc, i), nil
		}
		if doc.Kind != graph.KindStream {
			return nil, missing
		}
		record := id + "/" + node
		found, unread, err := f.store.Nodes.Appended(ctx, []string{record})
		if err = errors.Join(err, unread[record]); err != nil {
			return nil, fmt.Errorf("explaining the node %s: %w", record, err)
		}
		n := found[record]
		var before int64
		switch {
		case n == nil:
			return nil, missing
		case n.Status == graph.NodeInit:
			known := make([]string, len(doc.Nodes))
			for i := range doc.Nodes {
				known[i] = flowplan.RecordID(doc, i)
			}
			if before, err = f.store.Nodes.CountBefore(ctx, id, n.No, known); err != nil {
				return nil, err
			}
			if now, err := f.Get(ctx, id); err != nil {
				return nil, err
			} else if now.Rev != doc.Rev { // nodes that were linked in between were not counted
				continue
			}
		case !flowplan.Final(n.Status): // it was linked since the stream was read, or its end is being stored
			clock.Pause(ctx, 10*time.Millisecond)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		return flowplan.ExplainApart(doc, n, int(before)), nil
	}
	return nil, fmt.Errorf("explaining the node %s/%s: its stream changes all the time", id, node)
}

// NodeView is a node with its present status and what its task adds.
type NodeView struct {
	graph.Node
	Output    bson.RawValue // of a task that succeeded, or a person's answers; zero = none
	ErrorInfo string        // the last error of the task; "" = none

	// Times of its life; zero = not yet, or never.
	ReadyAt   time.Time // the node could start: its parents had ended as its join requires
	StartedAt time.Time // a worker claimed its task first; of a node without a task of its own, ReadyAt
	EndedAt   time.Time
}

// Nodes returns the nodes of a flow, each after its parents, with outputs and errors from their tasks.
// A node is RUNNING while a worker runs its task. With only, it returns the nodes of these ids, and reads no other tasks.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Nodes(ctx context.Context, id string, only ...string) ([]NodeView, error) {
	doc, err := f.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool, len(only))
	for _, node := range only {
		named[node] = true
	}
	wanted := func(i int) bool { return len(only) == 0 || named[doc.Nodes[i].ID] }
	ids := make([]string, 0, len(doc.Nodes))
	for i := range doc.Nodes {
		if id := taskID(doc, i); id != "" && wanted(i) {
			ids = append(ids, id)
		}
	}
	tasks, err := f.store.Tasks.LastLivesOf(ctx, ids, store.Output)
	if err != nil {
		return nil, fmt.Errorf("reading the nodes of the flow %s: %w", id, err)
	}
	out := make([]NodeView, 0, len(doc.Nodes))
	for i := range doc.Nodes {
		if wanted(i) {
			v := flowplan.ViewOf(doc, i, tasks[taskID(doc, i)])
			out = append(out, NodeView{*v.Node, v.Output, v.ErrorInfo, v.Times.Ready, v.Times.Started, v.Times.Ended})
		}
	}
	return out, nil
}

func checkRemark(remark string) error { return input.Label("remark", remark) }

// missingNodeError is the error of a node that its flow does not have.
type missingNodeError struct{ flow, node string }

func (e *missingNodeError) Error() string {
	return fmt.Sprintf("no such node: %q of the flow %s", e.node, e.flow)
}

func (e *missingNodeError) Unwrap() error { return store.ErrNoFlow }

// place is where a node stands in its flow.
func place(doc *graph.Flow, node string) (int, error) {
	for i := range doc.Nodes {
		if doc.Nodes[i].ID == node {
			return i, nil
		}
	}
	return 0, &missingNodeError{doc.ID, node}
}

const (
	// maxTries is how often a flow is read anew when somebody else decided in between.
	maxTries = 50
	// changePatience is for how long a decision is made anew when somebody else decided in between. An engine beside the
	// workers of a large flow decides faster than this process reads the flow, so it takes a pause of a random length
	// each time, up to longestBreath.
	changePatience, longestBreath = 10 * time.Second, 50 * time.Millisecond
)

// change reads a flow, decides and writes that, again until nobody interferes, and carries out what
// was decided.
func (f *Flows) change(ctx context.Context, doing, id, node string, decide func(doc *graph.Flow, node int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error)) (*graph.Flow, error) {
	ctx = store.Outside(ctx) // what follows the decision is many commands, which no transaction takes back
	if err := f.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s the flow %s: %w", doing, id, err)
	}
	entered := f.store.Local().Monotonic()
	for tries := 0; tries == 0 || f.store.Local().Monotonic()-entered < changePatience; tries++ {
		if tries > 1 {
			clock.Pause(ctx, rand.N(longestBreath))
		}
		began := clock.Read(f.store.Local())
		before, err := f.Get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s a flow: %w", doing, err)
		}
		i := 0
		if node != "" {
			if i, err = place(before, node); err != nil {
				return nil, err
			}
		}
		made := &making{flow: before, decide: func(in *flowplan.Inputs, now time.Time) (*graph.Flow, error) { return decide(before, i, in, now) }}
		if _, err := f.make(ctx, []*making{made}, f.store.Clock.Now()); err != nil {
			return nil, fmt.Errorf("%s the flow %s: %w", doing, id, err)
		}
		if made.err != nil {
			switch stays, err := f.store.Flows.Stays(ctx, before); {
			case err != nil:
				return nil, fmt.Errorf("%s the flow %s: %w", doing, id, err)
			case !stays:
				continue
			}
			return nil, fmt.Errorf("%s the flow: %w", doing, made.err)
		}
		applied, err := f.decider.One(ctx, began, store.Decision[*graph.Flow]{Before: before, After: made.after})
		if err != nil {
			return nil, fmt.Errorf("%s the flow %s: %w", doing, id, err)
		}
		if applied {
			return made.after, nil
		}
	}
	return nil, fmt.Errorf("%s the flow %s: others changed it in between for %s", doing, id, changePatience)
}
