package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// perAppend is how many appends are stored together.
	perAppend = 2000
	// appendTimeout bounds the storing of a group of appends.
	appendTimeout = 20 * time.Second
	// heldPatience is how long an append waits for another client's transaction.
	heldPatience = 75 * time.Second
	// linkPatience is how long an engine that stops waits until nodes are linked.
	linkPatience = 2 * time.Second
)

// streams appends to streams.
type streams struct {
	appends *groupcommit.Queue[*appending]
	links   *groupcommit.Queue[string] // ids of streams that may have nodes to link
	dried   *groupcommit.Queue[string] // ids of streams whose last node has ended
}

// appending is one append on its way.
type appending struct {
	id, key, scene, group string
	nodes                 []*graph.Node
	done                  chan error
}

// Append adds nodes to the end of a stream, in the given order, and returns their ids. A stream is an
// endless chain in which one node runs at a time. It has a scene (1 to 30 characters without a slash)
// and a group (1 to 100 characters); its id is scene/group. The first append creates it.
//
// When Append returns, the nodes are stored as INIT. Engines link them to the chain in the order of
// the calls, also if several processes append. The id of a node is its key: a second node with the
// same id is not stored. If the stream is closed, the error is a *[model.RefusedError].
//
// If a transaction runs on the session in ctx, the nodes are part of it. They are linked within about
// five seconds of a commit, if the transaction takes less than 90 s; otherwise within five minutes.
func (f *Flows) Append(ctx context.Context, scene, group string, nodes ...graph.NodeSpec) (ids []string, err error) {
	ctx = store.Inside(ctx)
	if err := f.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("appending to a stream: %w", err)
	}
	sealed, err := f.seal(graph.Spec{Nodes: nodes})
	if err != nil {
		return nil, fmt.Errorf("appending to a stream: %w", err)
	}
	now := f.store.Clock.Now()
	records, err := flowspec.Append(scene, group, sealed.Nodes, input.Random, now)
	if err != nil {
		return nil, fmt.Errorf("appending to a stream: %w", err)
	}
	a := &appending{scene: scene, group: group, nodes: records, done: make(chan error, 1)}
	a.id, a.key = flowspec.StreamID(scene, group)
	from, end := f.tracer.Begin(ctx, "append", now, attribute.String("mscheduler.flow", a.id), attribute.Int("mscheduler.nodes", len(records)))
	defer func() { end(err) }()
	for _, n := range records {
		n.Task.Trace = from
	}
	if store.InTransaction(ctx) {
		err = f.appendIn(ctx, a)
	} else if err = f.streams.appends.Put(ctx, a); err == nil {
		select {
		case err = <-a.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if errors.Is(err, store.ErrHeld) {
			err = f.appendHeld(ctx, a)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("appending to the stream %s: %w", a.id, err)
	}
	for _, n := range records {
		ids = append(ids, n.Node)
	}
	return ids, nil
}

// ValidateAppend returns every mistake in nodes that are to be appended to a stream, joined, or nil. It
// does no I/O.
func ValidateAppend(scene, group string, nodes ...graph.NodeSpec) error {
	_, err := flowspec.Append(scene, group, nodes, input.Random, clock.System().Now())
	return err
}

// appendIn stores nodes in the caller's transaction. Their numbers are not part of it, so that
// the stream need not wait for its end.
func (f *Flows) appendIn(ctx context.Context, a *appending) error {
	if err := f.reserveHeld(store.Outside(ctx), a, flowplan.TransactionPatience); err != nil {
		return err
	}
	return f.store.Nodes.Append(ctx, a.nodes)
}

// reserveHeld gives the nodes of one append their numbers. It waits while another client holds the
// stream.
func (f *Flows) reserveHeld(ctx context.Context, a *appending, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, heldPatience)
	defer cancel()
	return store.WhileHeld(ctx, func() error {
		refused, err := f.reserve(ctx, [][]*appending{{a}}, patience)
		return errors.Join(err, refused[0])
	})
}

// reserve gives the nodes of appends, by streams, their numbers.
func (f *Flows) reserve(ctx context.Context, streams [][]*appending, patience time.Duration) (refused map[int]error, err error) {
	now := f.store.Clock.Now()
	all := make([]store.Reservation, len(streams))
	for i, of := range streams {
		a, n := of[0], 0
		for _, a := range of {
			n += len(a.nodes)
		}
		all[i] = store.Reservation{ID: a.id, Key: a.key, Scene: a.scene, Group: a.group, N: n, Now: now, DueAt: now.Add(flowplan.LinkGrace), LookUntil: now.Add(patience)}
	}
	last, refused, err := f.store.Flows.Reserve(ctx, all)
	if err != nil {
		return nil, err
	}
	for i, of := range streams {
		if refused[i] != nil {
			continue
		}
		no := last[i] - int64(all[i].N)
		for _, a := range of {
			for _, node := range a.nodes {
				no++
				node.No = no
			}
		}
	}
	return refused, nil
}

// appendHeld stores nodes if another client holds their stream or some of them, or if a slow server has
// not stored them in time, apart from those of others.
func (f *Flows) appendHeld(ctx context.Context, a *appending) error {
	ctx, cancel := context.WithTimeout(ctx, heldPatience)
	defer cancel()
	if a.nodes[0].No == 0 {
		if err := f.reserveHeld(ctx, a, flowplan.AppendPatience); err != nil {
			return err
		}
	}
	err := store.WhileHeld(ctx, func() error { return f.store.Nodes.Append(ctx, a.nodes) })
	if err == nil {
		f.linkIdle(ctx, []string{a.id})
	}
	return err
}

// storeAppends stores what has gathered: the nodes of each stream get numbers, and then all of them
// are one command.
func (f *Flows) storeAppends(batch []*appending) {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	places := map[string]int{}
	var streams [][]*appending
	for _, a := range batch {
		at, known := places[a.id]
		if !known {
			at = len(streams)
			places[a.id], streams = at, append(streams, nil)
		}
		streams[at] = append(streams[at], a)
	}
	refused, err := f.reserve(ctx, streams, flowplan.AppendPatience)
	if err != nil {
		for _, a := range batch {
			a.done <- err
		}
		return
	}
	var ids []string
	var stored []*appending
	var nodes []*graph.Node
	for i, of := range streams {
		if refused[i] == nil {
			ids = append(ids, of[0].id)
		}
		for _, a := range of {
			if refused[i] != nil {
				a.done <- refused[i]
				continue
			}
			stored, nodes = append(stored, a), append(nodes, a.nodes...)
		}
	}
	if len(nodes) == 0 {
		return
	}
	err = f.store.Nodes.Append(ctx, nodes)
	var some *store.NodesError
	for _, a := range stored {
		if !errors.As(err, &some) {
			a.done <- err
			continue
		}
		var mine error
		for _, n := range a.nodes {
			if why := some.Refused[n.ID]; why != nil {
				mine = why
			}
		}
		a.done <- mine
	}
	if err != nil && some == nil {
		return // somebody looks for those that were stored all the same
	}
	f.linkIdle(ctx, ids)
}

// linkIdle has the streams linked of which no node runs. Of the others, whoever decides that the last
// node has ended links what is there by then, and looks once more after that decision is stored: the
// nodes were stored before this looks. One link is for all that have gathered.
func (f *Flows) linkIdle(ctx context.Context, ids []string) {
	ids, err := f.store.Flows.Idle(ctx, ids)
	if err != nil {
		return // they are due soon
	}
	for _, id := range ids {
		_ = f.streams.links.Put(ctx, id) // else it is due soon
	}
}

// Flush waits until this process has linked the nodes that it appended, or until ctx ends. Call it
// before a process exits. Otherwise an engine links them a few seconds later.
func (f *Flows) Flush(ctx context.Context) error {
	if err := f.streams.appends.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for appends: %w", err)
	}
	if err := errors.Join(f.streams.dried.Wait(ctx), f.streams.links.Wait(ctx)); err != nil {
		return fmt.Errorf("waiting until nodes are linked: %w", err)
	}
	return nil
}

// SetCallback configures signed requests about a stream, and creates the stream if it does not exist.
// Error is called when a node is PENDING, Success when the stream is closed and its last task has ended;
// if no node was ever linked, the request names none. ext is any JSON value that the requests
// contain. With nil or an empty c there are no calls. SetCallback replaces the settings of earlier calls; what has
// happened before causes no request.
func (f *Flows) SetCallback(ctx context.Context, scene, group string, c *model.Callback, ext any) (*graph.Flow, error) {
	const doing = "setting the callback of"
	ctx = store.Outside(ctx)
	if c != nil && c.Success == nil && c.Error == nil && c.Security == nil {
		c = nil
	}
	value, err := flowspec.Callback(c, ext)
	if err := errors.Join(flowspec.CheckStream(scene, group), err); err != nil {
		return nil, fmt.Errorf("%s a stream: %w", doing, err)
	}
	sealed, err := f.secrets.SealCallback("callback", c)
	if err != nil {
		return nil, fmt.Errorf("%s a stream: %w", doing, err)
	}
	if err := f.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s a stream: %w", doing, err)
	}
	a := &appending{scene: scene, group: group}
	a.id, a.key = flowspec.StreamID(scene, group)
	if _, err := f.store.Flows.Status(ctx, a.id); errors.Is(err, store.ErrNoFlow) { // an append of no nodes creates it
		refused, err := f.reserve(ctx, [][]*appending{{a}}, flowplan.AppendPatience)
		if err = errors.Join(err, refused[0]); err != nil {
			return nil, fmt.Errorf("%s the stream %s: %w", doing, a.id, err)
		}
	}
	return f.change(ctx, doing, a.id, "", func(doc *graph.Flow, _ int, _ *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		return flowplan.SetCallback(doc, sealed, value, now)
	})
}

// Open opens a closed stream: its waiting nodes continue, and it accepts appends again.
func (f *Flows) Open(ctx context.Context, scene, group string) (*graph.Flow, error) {
	if err := flowspec.CheckStream(scene, group); err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	id, _ := flowspec.StreamID(scene, group)
	return f.change(ctx, "opening", id, "", func(doc *graph.Flow, _ int, _ *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		return flowplan.Open(doc, now)
	})
}
