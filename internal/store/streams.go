package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// KindError says that the document of an id is a stream where a graph is wanted, or the other way
// round.
type KindError struct {
	ID     string
	Stream bool // it is a stream
}

func (e *KindError) Error() string {
	if e.Stream {
		return e.ID + " is a stream, not a graph"
	}
	return e.ID + " is a flow, not a stream"
}

// Reservation asks for numbers of nodes that are about to be appended to a stream.
type Reservation struct {
	ID, Key, Scene, Group string
	N                     int
	Now, DueAt            time.Time // somebody looks for nodes to link at DueAt, and then until LookUntil
	LookUntil             time.Time
}

// Reserve gives nodes of streams numbers greater than all that earlier calls returned, and returns the
// last number of each. Calls at the same time may get equal numbers, and some numbers go unused. It makes the streams that are not
// there. It leaves the rev as it is, so it crosses nobody's decision. refused[i] is
// why nothing may be appended to a stream. Index: _id.
func (s *Flows) Reserve(ctx context.Context, all []Reservation) (last []int64, refused map[int]error, err error) {
	const doing = "appending to streams"
	last, refused = make([]int64, len(all)), map[int]error{}
	left := make([]int, len(all))
	for i := range all {
		left[i] = i
	}
	for tries := 0; len(left) > 0; tries++ {
		if tries == maxTries {
			return nil, nil, fmt.Errorf("%s, %s among them: %d attempts conflicted with others", doing, all[left[0]].ID, tries)
		}
		x, err := s.sendEach(ctx, s.flows, "appending to stream", collect(left, func(i int) change { return all[i].write() }))
		if err != nil {
			return nil, nil, err
		}
		for id, why := range x.refused {
			if !IsDuplicate(why) {
				return nil, nil, fmt.Errorf("appending to the stream %s: %w", id, why)
			}
		}
		found, err := readAll[graph.Flow](ctx, s.flows, doing, bson.D{d("_id", in(collect(left, func(i int) string { return all[i].ID })))},
			options.Find().SetProjection(bson.D{d("kind", 1), d("closed", 1), d("appended", 1)}))
		if err != nil {
			return nil, nil, err
		}
		byID := make(map[string]*graph.Flow, len(found))
		for i := range found {
			byID[found[i].ID] = &found[i]
		}
		var again []int
		for _, i := range left {
			f := byID[all[i].ID]
			switch id := all[i].ID; {
			case x.held[id]:
				refused[i] = fmt.Errorf("%s: %w", id, ErrHeld)
			case f != nil && x.refused[id] == nil:
				last[i] = f.Appended
			case whyNoAppend(f) != nil:
				refused[i] = whyNoAppend(f)
			default: // two first appends at once, or it was opened
				again = append(again, i)
			}
		}
		left = again
	}
	return last, refused, nil
}

// Appendable says why nothing may be appended to a stream; nil = something may, also if the stream is not there yet.
// Whoever closes it meanwhile refuses the append all the same. Index: _id.
func (s *Flows) Appendable(ctx context.Context, id string) error {
	f, there, err := readOne[graph.Flow](ctx, s.flows, "reading the stream "+id, bson.D{d("_id", id)}, options.FindOne().SetProjection(fields("kind", "closed")))
	if err != nil || !there {
		return err
	}
	return whyNoAppend(&f)
}

// whyNoAppend is why nothing may be appended to a document; nil = something may, or nobody knows it.
func whyNoAppend(f *graph.Flow) error {
	switch {
	case f == nil:
		return nil
	case f.Kind != graph.KindStream:
		return &KindError{ID: f.ID}
	case f.Closed:
		return &model.RefusedError{ID: f.ID, Reason: "the stream is closed"}
	}
	return nil
}

// write is the update of a reservation.
func (r *Reservation) write() change {
	return change{id: r.ID, upsert: true, guard: bson.D{d("kind", graph.KindStream), d("closed", bson.D{d("$ne", true)})},
		update: bson.D{
			d("$inc", bson.D{d("appended", int64(r.N))}),
			d("$min", bson.D{d("due_at", r.DueAt)}),
			d("$max", bson.D{d("look_until", r.LookUntil)}),
			d("$setOnInsert", bson.D{
				d("key", r.Key), d("scene", r.Scene), d("group", r.Group), d("status", graph.StatusRunning), d("rev", int64(1)),
				d("created_at", r.Now), d("updated_at", r.Now), d("nodes", bson.A{}), d("states", bson.A{}),
			}),
		}}
}

// Appending is what appends write of a stream, at any time and whatever its rev is.
type Appending struct {
	ID        string    `bson:"_id"`
	Rev       int64     `bson:"rev"`
	Appended  int64     `bson:"appended"`
	DueAt     time.Time `bson:"due_at"`
	LookUntil time.Time `bson:"look_until"`
}

// Appending reads what was appended to streams. Index: _id.
func (s *Flows) Appending(ctx context.Context, ids []string) ([]Appending, error) {
	return readAll[Appending](ctx, s.flows, "reading what was appended", bson.D{d("_id", in(ids))}, options.Find().SetProjection(fields("rev", "appended", "due_at", "look_until")))
}

// Idle are those of the streams of which no node runs or may run. Index: _id.
func (s *Flows) Idle(ctx context.Context, ids []string) ([]string, error) {
	return readIDs(ctx, s.flows, "looking for streams that are idle", bson.D{d("_id", in(ids)), d("running_at", absent)})
}

// maxTries is how often a write is tried that conflicts with others.
const maxTries = 50

// streamGuard guards a decision after which nobody looks for nodes to link: none was appended since
// it was read how many there are.
func streamGuard(w Decision[*graph.Flow]) bson.D {
	if w.Before.DueAt.IsZero() || !w.After.DueAt.IsZero() || w.Before.Kind != graph.KindStream {
		return nil
	}
	return bson.D{d("appended", w.After.Appended)}
}

// Append stores nodes that are to be linked, each unless one of its id is there, and none before those in front of it:
// whoever links them links what it sees. In a transaction it is part of that. Index: _id.
func (s *Nodes) Append(ctx context.Context, nodes []*graph.Node) error {
	statements := make([]statement, 0, len(nodes))
	seen := make(map[string]bool, len(nodes)) // of several with one id the first is stored
	for _, n := range nodes {
		if seen[n.ID] {
			continue
		}
		seen[n.ID] = true
		doc, err := codec.Encode(n)
		if err != nil {
			return &FatalError{Reason: "encoding the node " + n.ID, Err: err}
		}
		statements = append(statements, statement{ids: []string{n.ID}, insert: doc})
	}
	if InTransaction(ctx) {
		models := collect(statements, func(st statement) mongo.WriteModel {
			return mongo.NewUpdateOneModel().SetFilter(bson.D{d("_id", st.ids[0])}).SetUpdate(bson.D{d("$setOnInsert", st.insert)}).SetUpsert(true)
		})
		_, err := s.flowNodes.BulkWrite(ctx, models)
		return explain(err, "storing appended nodes")
	}
	x, err := s.insertInOrder(ctx, s.flowNodes, "storing appended node", statements, Patience)
	if err != nil {
		return err
	}
	failed := map[string]error{}
	for id := range seen {
		switch {
		case x.refused[id] != nil:
			failed[id] = x.refused[id]
		case x.held[id], !x.exists[id] && !x.done(id):
			failed[id] = fmt.Errorf("storing the node %s: %w", id, ErrHeld)
		}
	}
	if len(failed) > 0 {
		return &NodesError{Refused: failed}
	}
	return nil
}

// NodesError says which nodes were not stored, by id, and why. All others were.
type NodesError struct{ Refused map[string]error }

// Unwrap implements errors.Is.
func (e *NodesError) Unwrap() (all []error) {
	for _, err := range e.Refused {
		all = append(all, err)
	}
	return all
}

func (e *NodesError) Error() string {
	for id, err := range e.Refused {
		return fmt.Sprintf("%d nodes were not stored, %s among them: %v", len(e.Refused), id, err)
	}
	return "no node was refused"
}

// Waiting is what [Store.Waiting] found of one stream.
type Waiting struct {
	Nodes  []*graph.Node // INIT, by their numbers
	More   bool          // there may be others behind them
	Unread *Unreadable   // the next one cannot be read by this release
}

const (
	// waitingBytes is how much one call of [Store.Waiting] takes: it stops with the node that exceeds it.
	waitingBytes = 4 << 20
	// waitingAsk is how many streams one command reads.
	waitingAsk = 100
)

// errEnough ends a read that has enough.
var errEnough = errors.New("enough was read")

// Waiting reads nodes of streams that are to be linked, at most limit of each, and none with a number
// beyond that of upTo: an earlier one might come to light after the read has passed it. It reads one
// node at least, if there is any, and stops when it has read much: a stream that is not in the result
// was not read. Index: link.
func (s *Store) Waiting(ctx context.Context, upTo map[string]int64, limit int) (map[string]*Waiting, error) {
	const doing = "reading nodes to link"
	out := make(map[string]*Waiting, len(upTo))
	bytes := 0
	question := func(id string) Question {
		return Question{
			coll: s.flowNodes, filter: bson.D{d("flow_id", id), d("no", bson.D{d("$gt", 0), d("$lte", upTo[id])})}, sort: bson.D{d("flow_id", 1), d("no", 1)}, limit: limit + 1,
			take: func(raw bson.Raw) error {
				if bytes > waitingBytes {
					return errEnough
				}
				w := out[id]
				if w == nil {
					w = new(Waiting)
					out[id] = w
				}
				if w.Unread != nil {
					return nil
				}
				if len(w.Nodes) == limit {
					w.More = true
					return nil
				}
				bytes += len(raw)
				n := new(graph.Node)
				if err := codec.Decode(raw, n); err != nil {
					u := unreadable(raw, err)
					w.Unread = &u
					return nil
				}
				w.Nodes = append(w.Nodes, n)
				return nil
			},
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(upTo)), waitingAsk) {
		err := s.Ask(ctx, doing, collect(ids, question)...)
		if errors.Is(err, errEnough) {
			for _, w := range out {
				w.More = true // of the one that was read last, there may be
			}
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if out[id] == nil {
				out[id] = new(Waiting)
			}
		}
	}
	return out, nil
}

// Appended reads nodes by their ids, with the tasks of those that are not linked. unread says which of
// them this release cannot read, and why. Index: _id.
func (s *Nodes) Appended(ctx context.Context, ids []string) (found map[string]*graph.Node, unread map[string]error, err error) {
	found, unread = make(map[string]*graph.Node, len(ids)), map[string]error{}
	err = decodeEach(ctx, s.flowNodes, "reading nodes to link", bson.D{d("_id", in(ids))}, options.Find(),
		func(n *graph.Node) { found[n.ID] = n }, func(doc bson.Raw, err error) { unread[unreadable(doc, err).ID] = err })
	return found, unread, err
}

// NextWaiting are the next streams after the given one of which nodes are to be linked, at least one
// unless there is none. It looks at that many nodes. Index: link.
func (s *Nodes) NextWaiting(ctx context.Context, after string, look int) (flowIDs []string, err error) {
	err = readEach(ctx, s.flowNodes, "looking for nodes to link", bson.D{d("flow_id", bson.D{d("$gt", after)}), d("no", bson.D{d("$gt", 0)})},
		options.Find().SetHint(indexLink).SetSort(bson.D{d("flow_id", 1), d("no", 1)}).SetProjection(fields("flow_id")).SetLimit(int64(look)), func(raw bson.Raw) bool {
			if id, ok := raw.Lookup("flow_id").StringValueOK(); ok && (len(flowIDs) == 0 || flowIDs[len(flowIDs)-1] != id) {
				flowIDs = append(flowIDs, id)
			}
			return true
		})
	return flowIDs, err
}

// CountBefore counts the nodes of a stream that are to be linked before the number, without those of
// the given ids. Index: link.
func (s *Nodes) CountBefore(ctx context.Context, flowID string, no int64, without []string) (int64, error) {
	n, err := s.flowNodes.CountDocuments(ctx, bson.D{d("flow_id", flowID), d("no", bson.D{d("$gt", 0), d("$lt", no)}), d("_id", bson.D{d("$nin", without)})}, options.Count().SetHint(indexLink))
	return n, explain(err, "counting nodes to link")
}

// CountWaiting counts the nodes of streams that are to be linked, by stream: in the order of the streams' ids,
// at most that many (0 = all) together. last is the last stream that was counted, perhaps not all of it; "" = all
// were. Index: link.
func (s *Nodes) CountWaiting(ctx context.Context, flowIDs []string, most int64) (counts map[string]int64, last string, err error) {
	const doing = "counting nodes to link"
	waiting := bson.D{d("flow_id", in(flowIDs)), d("no", bson.D{d("$gt", 0)})}
	if most > 0 {
		counts, left := map[string]int64{}, most
		err := readEach(ctx, s.flowNodes, doing, waiting, options.Find().SetHint(indexLink).SetSort(fields("flow_id", "no")).SetLimit(most).
			SetProjection(bson.D{d("_id", 0), d("flow_id", 1)}), func(doc bson.Raw) bool {
			id, _ := doc.Lookup("flow_id").StringValueOK()
			counts[id]++
			if left--; left == 0 {
				last = id
			}
			return true
		})
		return counts, last, err
	}
	type number struct {
		ID string `bson:"_id"`
		N  int64  `bson:"n"`
	}
	counted, err := aggregated[number](ctx, s.flowNodes, doing, mongo.Pipeline{
		{d("$match", waiting)},
		{d("$group", bson.D{d("_id", "$flow_id"), d("n", bson.D{d("$sum", 1)})})},
	}, options.Aggregate().SetHint(indexLink))
	if err != nil {
		return nil, "", err
	}
	counts = make(map[string]int64, len(counted))
	for _, c := range counted {
		counts[c.ID] = c.N
	}
	return counts, "", nil
}

// Chain reads the records of the nodes of a stream that come after the given position, up to the last
// one, in their order, at most limit. Index: chain.
func (s *Nodes) Chain(ctx context.Context, flowID string, after, last int64, limit int) ([]graph.Node, error) {
	return readAll[graph.Node](ctx, s.flowNodes, "reading the nodes of the stream "+flowID,
		bson.D{d("flow_id", flowID), d("position", bson.D{d("$gt", after), d("$lte", last)})},
		options.Find().SetHint(indexChain).SetSort(bson.D{d("flow_id", 1), d("position", 1)}).SetLimit(int64(limit)))
}

// Streams reads streams by their ids, at most limit after the given one, without what they plan.
// unread are documents that this release cannot read; limit counts them, too. Index: kind.
func (s *Flows) Streams(ctx context.Context, after string, limit int) (docs []*graph.Flow, unread []Unreadable, err error) {
	return s.read(ctx, "listing streams", bson.D{d("kind", graph.KindStream), d("_id", bson.D{d("$gt", after)})},
		options.Find().SetHint(indexKind).SetSort(bson.D{d("kind", 1), d("_id", 1)}).SetLimit(int64(limit)).SetProjection(bson.D{d("planned", 0)}))
}

// StreamsIn reads the streams of a status as [Flows.List] does, but with their graphs. Index: state.
func (s *Flows) StreamsIn(ctx context.Context, status graph.Status, span Span) (docs []*graph.Flow, unread []Unreadable, err error) {
	return s.read(ctx, "listing streams", span.where("updated_at", bson.D{d("status", status), d("kind", graph.KindStream)}),
		span.options("updated_at", indexState).SetProjection(bson.D{d("planned", 0)}))
}

// LongReady reads flows as [Flows.List] does: those that are RUNNING and of which a node has been READY since before the
// given time, but for nodes that wait for a time. When something was last decided about a flow does not matter: other
// nodes may keep it busy. unread are flows that this release cannot read. Index: state, and the states of all that are
// RUNNING.
func (s *Flows) LongReady(ctx context.Context, since time.Time, after *graph.Flow, limit int) (docs []*graph.Flow, unread []Unreadable, err error) {
	span := Span{Limit: limit}
	if after != nil {
		span.At, span.ID = after.UpdatedAt, after.ID
	}
	return s.list(ctx, bson.D{d("status", graph.StatusRunning),
		d("states", bson.D{d("$elemMatch", bson.D{d("s", graph.NodeReady), d("due_at", absent), d("at", bson.D{d("$lte", since)})})})}, span)
}
