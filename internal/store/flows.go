package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// Index names of flows and flow_nodes.
const (
	indexRunning = "running" // {running_at} where it exists
	indexState   = "state"   // {status, updated_at: -1, _id: -1} of flows; {status, at: -1, _id: -1} of flow_nodes
	indexFlow    = "flow"    // {flow_id} of flow_nodes
	indexDueFlow = "due"     // {due_at} of flows, where it exists
	indexKind    = "kind"    // {kind, _id} of flows, where it exists
	indexLink    = "link"    // {flow_id, no} of flow_nodes, where no exists
	indexChain   = "chain"   // {flow_id, position} of flow_nodes, where position exists
)

// ErrNoFlow is returned for a flow that does not exist.
var ErrNoFlow = missing("no such flow")

// Flows is the collection flows.
type Flows struct {
	decided[graph.Flow, graph.Planned]
}

func newFlows(c *core) *Flows {
	return &Flows{decided[graph.Flow, graph.Planned]{
		core: c, coll: c.flows, kind: kind{"flow", "flows"}, guard: streamGuard, mend: linkNodes, apart: nodesApart,
		of: func(f *graph.Flow) (string, plans[graph.Planned]) {
			return f.ID, plans[graph.Planned]{f.Rev, &f.Decision, &f.Planned, &f.PlannedAt}
		},
		planID: func(p graph.Planned) string { return p.ID },
	}}
}

// Insert stores a new flow. exists says that there is one of its id. In a transaction it is part of
// that, which goes on if the flow exists: a refused insert would
// abort it, and an upsert that finds the flow does not. Index: _id.
func (s *Flows) Insert(ctx context.Context, f *graph.Flow) (exists bool, err error) {
	doc, err := unlessThere(f)
	if err != nil {
		return false, &FatalError{Reason: "encoding the flow " + f.ID, Err: err}
	}
	res, err := s.flows.UpdateOne(ctx, bson.D{d("_id", f.ID)}, bson.D{d("$setOnInsert", doc)}, options.UpdateOne().SetUpsert(true))
	if IsDuplicate(err) && !InTransaction(ctx) { // another one came in between
		return true, nil
	}
	return err == nil && res.MatchedCount == 1, explain(err, "storing the flow "+f.ID)
}

// Get reads a flow. Index: _id.
func (s *Flows) Get(ctx context.Context, id string) (*graph.Flow, error) {
	raw, err := readKnown[bson.Raw](ctx, s.flows, "reading the flow "+id, bson.D{d("_id", id)}, ErrNoFlow, id)
	if err != nil {
		return nil, err
	}
	f, err := s.decode(*raw)
	return f, explain(err, "reading the flow "+id)
}

// Status reads a flow's status alone: the document may be large. Index: _id.
func (s *Flows) Status(ctx context.Context, id string) (graph.Status, error) {
	f, err := readKnown[struct{ Status graph.Status }](ctx, s.flows, "reading the status of the flow "+id, bson.D{d("_id", id)}, ErrNoFlow, id, options.FindOne().SetProjection(fields("status")))
	if err != nil {
		return "", err
	}
	return f.Status, nil
}

// Briefs reads who started flows, and how far they are: the documents may be large. durable reads only what a failover
// cannot undo. One that is there and cannot be read is nil. Index: _id.
func (s *Flows) Briefs(ctx context.Context, ids []string, durable bool) (map[string]*graph.Flow, error) {
	coll, out := s.flows, make(map[string]*graph.Flow, len(ids))
	if durable {
		coll = s.durable(coll)
	}
	for some := range slices.Chunk(ids, mostAtOnce) {
		found, unread, err := s.readIn(ctx, coll, "reading flows", bson.D{d("_id", in(some))}, options.Find().SetProjection(fields("parent", "status", "closed", "created_at")))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			out[f.ID] = f
		}
		for _, u := range unread {
			out[u.ID] = nil
		}
	}
	return out, nil
}

// linkNodes gives each node of a stream its parent, which is the one before it and is not stored.
func linkNodes(f *graph.Flow) {
	if f.Kind == graph.KindStream {
		for i := 1; i < len(f.Nodes); i++ {
			f.Nodes[i].After = []int{i - 1}
		}
	}
}

// Callback reads who is told of a flow, and its ext. Index: _id.
func (s *Flows) Callback(ctx context.Context, id string) (*model.Callback, bson.RawValue, error) {
	f, err := readKnown[graph.Flow](ctx, s.flows, "reading the callback of the flow "+id, bson.D{d("_id", id)}, ErrNoFlow, id, options.FindOne().SetProjection(fields("callback", "ext")))
	if err != nil {
		return nil, bson.RawValue{}, err
	}
	return f.Callback, f.Ext, nil
}

// Questions are those of a look. A flow is due when a node has waited for its time or a custom join is to be called, a stream when
// nodes wait to be linked. Index of the next one: due.
func (s *Flows) Questions(l Look[*graph.Flow]) []Question {
	return []Question{
		s.DueQuestion(l.Now, l.Skip, l.Limit, l.Read, l.Due, l.Unread), s.nextQuestion("due_at", l.Now, l.Next),
		s.plannedQuestion(l.LeftBefore, l.Left), s.RunningQuestion(l.Waiting),
	}
}

// DueQuestion asks for the flows that are due, the longest due first. read is that of [Look]: flows may be large. Index: due.
func (s *Flows) DueQuestion(now time.Time, skip, limit int, read func(bytes int) bool, take func(*graph.Flow), unread func(Unreadable)) Question {
	return Question{coll: s.flows, filter: bson.D{d("due_at", bson.D{d("$lte", now)})}, sort: bson.D{d("due_at", 1)}, skip: skip, limit: limit,
		take: func(raw bson.Raw) error {
			if read != nil && !read(len(raw)) {
				return nil
			}
			s.give(raw, take, unread)
			return nil
		}}
}

// RunningQuestion asks whether the task of a node of any flow may run. Index: running.
func (s *Flows) RunningQuestion(found func()) Question {
	return s.whether(bson.D{d("running_at", bson.D{d("$gt", time.UnixMilli(0))})}, found)
}

// FlowFilter selects flows. Zero fields select everything.
type FlowFilter struct {
	Tenant string // [model.NoTenant] = those without one
	Status graph.Status
	Graphs bool // no streams
}

// indexed is the part of the query that the index state answers. The statuses are points, so that the server
// merges the ranges behind them by time.
func (f FlowFilter) indexed() bson.D {
	if f.Status != "" {
		return bson.D{d("status", f.Status)}
	}
	return bson.D{d("status", in([]graph.Status{graph.StatusRunning, graph.StatusPending, graph.StatusFinish}))}
}

// List reads flows in the order of their last changes, without their graphs and plans. unread are
// documents that this release cannot read. Index: state.
func (s *Flows) List(ctx context.Context, f FlowFilter, span Span) (docs []*graph.Flow, unread []Unreadable, err error) {
	filter := byTenant(f.indexed(), f.Tenant)
	if f.Graphs {
		filter = append(filter, d("kind", absent))
	}
	return s.list(ctx, filter, span)
}

// Named reads flows of a tenant whose key begins so, ordered by it, after the given id, without their graphs and plans.
// unread are documents that this release cannot read. Index: _id.
func (s *Flows) Named(ctx context.Context, tenant, prefix, after string, limit int) (docs []*graph.Flow, unread []Unreadable, err error) {
	filter := bson.D{d("_id", beginsWith(tenant, prefix, after)), d("kind", absent)}
	return s.read(ctx, "finding flows by key", filter, options.Find().SetSort(bson.D{d("_id", 1)}).SetHint("_id_").SetLimit(int64(limit)).SetProjection(bson.D{d("nodes", 0), d("planned", 0)}))
}

// Bound is where a page of [Flows.List] is to end, so that the server looks at [PageExamines] flows at most. Index:
// state, and no document.
func (s *Flows) Bound(ctx context.Context, f FlowFilter, span Span) (time.Time, error) {
	return span.bounded(ctx, s.flows, "listing flows", "updated_at", indexState, f.indexed())
}

// byTenant adds a tenant to a query: "" = any, [model.NoTenant] = none.
func byTenant(q bson.D, tenant string) bson.D {
	switch tenant {
	case "":
		return q
	case model.NoTenant:
		return append(q, d("tenant", nil)) // absent
	default:
		return append(q, d("tenant", tenant))
	}
}

// list reads flows without their graphs and plans, in the order of their last changes.
func (s *Flows) list(ctx context.Context, filter bson.D, span Span) (docs []*graph.Flow, unread []Unreadable, err error) {
	return s.read(ctx, "listing flows", span.where("updated_at", filter), span.options("updated_at", indexState).SetProjection(bson.D{d("nodes", 0), d("planned", 0)}))
}

// nodesApart takes the nodes out of a decision: the states that changed are written one by one, since a
// flow may have ten thousand.
func nodesApart(before, after *graph.Flow) (set, push bson.D, err error) {
	set, push, err = statesUpdate(before, after)
	before.Nodes, before.States = nil, nil
	after.Nodes, after.States = nil, nil
	// Appends alone write these, at any time: a decision would set them back.
	after.Appended, after.LookUntil = before.Appended, before.LookUntil
	return set, push, err
}

// statesUpdate are the fields that an update sets for the states that changed, and what it appends to
// the lists of a stream that has more nodes: those that are over leave their beginning meanwhile. An
// update cannot do both with a list. So where nodes are linked by the decision that the last one is
// over, the few that stay are written once more.
func statesUpdate(before, after *graph.Flow) (set, push bson.D, err error) {
	gone := after.Trimmed - before.Trimmed
	kept := len(before.Nodes) - gone
	for i := range kept {
		was, is := &before.States[gone+i], &after.States[i]
		if was.Status != is.Status || was.Reason != is.Reason || was.Own != is.Own || was.Life != is.Life || !was.At.Equal(is.At) || !was.DueAt.Equal(is.DueAt) ||
			was.Elements != is.Elements || !sameValue(was.Context, is.Context) || !sameValue(was.Output, is.Output) {
			doc, err := codec.Encode(is)
			if err != nil {
				return nil, nil, err
			}
			set = append(set, d("states."+strconv.Itoa(i), doc))
		}
	}
	if len(after.Nodes) == kept {
		return set, nil, nil
	}
	from := kept
	if len(set) > 0 {
		from = 0
	}
	nodes, err := docsOf(collect(after.Nodes[from:], func(v graph.Vertex) graph.Vertex {
		v.After = nil // each node's parent is the one before it
		return v
	}))
	if err != nil {
		return nil, nil, err
	}
	states, err := docsOf(after.States[from:])
	if err != nil || len(set) > 0 {
		return bson.D{d("nodes", nodes), d("states", states)}, nil, err
	}
	stay := -len(after.Nodes)
	return nil, bson.D{
		d("nodes", bson.D{d("$each", nodes), d("$slice", stay)}),
		d("states", bson.D{d("$each", states), d("$slice", stay)}),
	}, nil
}

func sameValue(a, b bson.RawValue) bool { return a.Type == b.Type && bytes.Equal(a.Value, b.Value) }

// Nodes is the collection flow_nodes.
type Nodes struct{ *core }

// Put stores what nodes have become, each unless the stored record is of a later decision. How long the
// records of a graph are kept is said by [Nodes.KeepUntil] alone. held are those that another client
// holds; the others are stored. Index: _id.
func (s *Nodes) Put(ctx context.Context, nodes []*graph.Node) (held []*graph.Node, err error) {
	var whole []*graph.Node // of streams: a record that was INIT becomes another one
	var graphs []*graph.Node
	for _, n := range nodes {
		if n.Position > 0 {
			whole = append(whole, n)
			continue
		}
		c := *n
		c.DeleteAt = time.Time{}
		graphs = append(graphs, &c)
	}
	rest, held, err := s.insertNew(ctx, graphs)
	if err != nil {
		return nil, err
	}
	if rest, err = s.putEqual(ctx, rest); err != nil {
		return nil, err
	}
	more, err := putRecords(ctx, s.core, s.flowNodes, storingNode, append(whole, rest...), func(n *graph.Node) (string, int64) { return n.ID, n.Rev }, "delete_at")
	return append(held, more...), err
}

const storingNode = "storing flow node"

// insertNew inserts the records of new flows, which costs the server less than upserts. It returns
// the others, and those that are there already.
func (s *Nodes) insertNew(ctx context.Context, nodes []*graph.Node) (rest, held []*graph.Node, err error) {
	var fresh []*graph.Node
	for _, n := range nodes {
		if n.Rev > 1 {
			rest = append(rest, n)
		} else {
			fresh = append(fresh, n)
		}
	}
	existed, waits, err := insertEach(ctx, s.core, s.flowNodes, storingNode, fresh)
	for _, at := range existed {
		rest = append(rest, fresh[at])
	}
	for _, at := range waits {
		held = append(held, fresh[at])
	}
	return rest, held, err
}

// putEqual changes records of nodes, with one statement for all that have become the same. It returns the nodes
// that may not be stored. Behind a router, where a statement names one record, these are all nodes. No record
// becomes older.
func (s *Nodes) putEqual(ctx context.Context, nodes []*graph.Node) (rest []*graph.Node, err error) {
	type state struct {
		status graph.NodeStatus
		reason string
		life   int64
		rev    int64
		at     time.Time
	}
	states := map[state]bool{}
	changes := make([]change, len(nodes))
	for i, n := range nodes {
		states[state{n.Status, n.Reason, n.Life, n.Rev, n.At}] = true
		set := bson.D{d("status", n.Status), d("rev", n.Rev), d("at", n.At)}
		var unset bson.D
		setOrUnset(&set, &unset, n.Reason != "", "reason", n.Reason)
		setOrUnset(&set, &unset, n.Life != 0, "life", n.Life)
		changes[i] = change{id: n.ID, guard: bson.D{d("rev", bson.D{d("$lte", n.Rev)})}, update: setAndUnset(set, unset)}
	}
	t, err := s.Topology(ctx)
	if err != nil || t.Sharded || len(nodes) < 2*len(states) {
		return nodes, err
	}
	x, err := s.sendEach(ctx, s.flowNodes, storingNode, changes)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if !x.done(n.ID) {
			rest = append(rest, n)
		}
	}
	return rest, nil
}

// keepTime bounds [Nodes.KeepUntil] of one flow.
const keepTime = 2 * time.Second

// KeepUntil has the records of a flow's nodes deleted at that time; zero = never. rev is that of the
// decision: a record that a later decision has changed stays as it is. It is [ErrHeld] if it takes longer
// than keepTime, since another client holds a record, say. The same again goes on where that ended. Index: flow.
func (s *Nodes) KeepUntil(ctx context.Context, flowID string, at time.Time, rev int64) error {
	update := setAndUnset(bson.D{d("kept_rev", rev)}, bson.D{d("delete_at", "")})
	if !at.IsZero() {
		update = bson.D{d("$set", bson.D{d("delete_at", at), d("kept_rev", rev)})}
	}
	earlier := bson.A{bson.D{d("kept_rev", absent)}, bson.D{d("kept_rev", bson.D{d("$lt", rev)})}}
	call, cancel := context.WithTimeout(ctx, keepTime+answerPatience)
	defer cancel()
	limited := ownTimeLimit{call}
	err := timeUp(limited, s.db.RunCommand(limited, bson.D{
		d("update", s.flowNodes.Name()), d("updates", bson.A{bson.D{
			d("q", bson.D{d("flow_id", flowID), d("$or", earlier)}), d("u", update), d("multi", true), d("hint", indexFlow),
		}}),
		d("writeConcern", bson.D{d("w", "majority")}), d("maxTimeMS", ms(keepTime)),
	}).Err())
	var server mongo.ServerError
	if errors.As(err, &server) && slices.ContainsFunc(ranOutCodes, server.HasErrorCode) { // a router may say it of a statement
		err = ErrHeld
	}
	return explain(err, "keeping the nodes of the flow "+flowID)
}
