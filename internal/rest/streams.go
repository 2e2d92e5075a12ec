package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// StreamPath is the id of a stream, scene/group, as a path. A stream belongs to no tenant.
type StreamPath struct {
	Scene string `path:"scene" pattern:"^[^/]{1,30}$" doc:"scene of the stream, 1 to 30 characters without a slash"`
	Group string `path:"group" minLength:"1" maxLength:"100" doc:"group of the stream, 1 to 100 characters, percent-encoded where it has a slash"`
}

func (p *StreamPath) named() flowName { return flowName{p.Scene + "/" + p.Group, graph.KindStream} }

const streamAt = "/streams/{scene}/{group}"

// appending is the body of an append.
type appending struct {
	Nodes []form.FlowNode `json:"nodes,omitzero" doc:"1 to 1,000 nodes, each with a task; they run one at a time, in their order"`
	called
}

// called says who is called about a stream.
type called struct {
	Callback *form.Callback `json:"callback,omitzero" doc:"signed requests: error for each PENDING node, success when the stream is closed; empty = none; absent = unchanged"`
	Ext      form.Value     `json:"ext,omitzero" doc:"any JSON value that the requests contain; given with callback"`
}

// NodeKeys is the header of appends.
type NodeKeys struct {
	RequestKey string `header:"Idempotency-Key" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"the same for each repetition of the request; a new one for a new request"`
}

type streamList struct {
	Body struct {
		Streams    []view.Stream `json:"streams"`
		Unreadable []unreadable  `json:"unreadable,omitempty" doc:"streams of the page that this release cannot read; none of their nodes starts"`
		Next       string        `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

func (s *API) addStreams() {
	read, change := rule{access.Viewer, everyTenant}, rule{access.Operator, everyTenant}
	add(s, read, op("list-streams", http.MethodGet, "/streams", "List streams with their backlogs and speeds, sorted by id or by the last change",
		sparse+" It counts 5,000 waiting nodes, and ends with the stream that has the last of them: its init may be too low."), s.listStreams)
	add(s, read, op("get-stream", http.MethodGet, streamAt, "Get a stream with its backlog and speed", ""), func(ctx context.Context, in *struct{ StreamPath }) (*answer[view.Stream], error) {
		doc, err := s.readFlow(ctx, in.named())
		if err != nil {
			return nil, err
		}
		init, _, err := s.store.Nodes.CountWaiting(ctx, []string{doc.ID}, 0)
		if err != nil {
			return nil, err
		}
		views, err := s.timed(ctx, []*graph.Flow{doc}, []view.Stream{view.StreamOf(doc, init[doc.ID])})
		if err != nil {
			return nil, err
		}
		return answered(views[0], nil)
	})
	add(s, change, op("append-nodes", http.MethodPost, streamAt+"/nodes", "Append nodes to a stream",
		"The first append makes the stream. The id of a node is its key: a node of that id is stored once. With an Idempotency-Key, nodes without an id get one from it and from their place. If one node is invalid, none is appended. A closed stream refuses. An engine of flows must run somewhere for the nodes to run."), s.appendNodes)
	add(s, read, op("list-nodes-of-stream", http.MethodGet, streamAt+"/nodes", "List the linked nodes of a stream that have not ended, and some that have", "A node is RUNNING while a worker runs its task."),
		func(ctx context.Context, in *struct {
			StreamPath
			NodesPage
		}) (*nodeList, error) {
			return s.listNodes(ctx, in.named(), in.NodesPage)
		})
	add(s, read, op("explain-node-of-stream", http.MethodGet, streamAt+"/nodes/{node}/explain", "Explain why a node has its status, and what would start it", ""), func(ctx context.Context, in *struct {
		StreamPath
		NodePath
	}) (*answer[view.ExplainedNode], error) {
		return s.explainNode(ctx, in.named(), in.Node)
	})
	add(s, change, op("resolve-node-of-stream", http.MethodPost, streamAt+"/nodes/{node}/resolve", resolveSummary, resolveMore), func(ctx context.Context, in *struct {
		StreamPath
		NodePath
		Body body[resolving]
	}) (*flowAnswer, error) {
		return s.resolveNode(ctx, in.named(), in.Node, in.Body.form)
	})
	add(s, change, op("retry-node-of-stream", http.MethodPost, streamAt+"/nodes/{node}/retry", "Run a PENDING node of a stream again", ""), func(ctx context.Context, in *struct {
		StreamPath
		NodePath
	}) (*flowAnswer, error) {
		return s.retryNode(ctx, in.named(), in.Node)
	})
	add(s, change, op("cancel-stream", http.MethodPost, streamAt+"/cancel", "Close a stream", "The running task is cancelled, no node starts any more, and appends are refused until somebody opens the stream."), func(ctx context.Context, in *struct {
		StreamPath
		Body *body[remarked]
	}) (*flowAnswer, error) {
		return s.cancelFlow(ctx, in.named(), in.Body)
	})
	add(s, change, op("open-stream", http.MethodPost, streamAt+"/open", "Open a stream that the failure of a node, or a cancel, has closed", "The nodes that wait continue. An open stream does not change, but for its callback."), func(ctx context.Context, in *struct {
		StreamPath
		Body *body[called]
	}) (*flowAnswer, error) {
		if in.Body != nil {
			if _, err := s.readFlow(ctx, in.named()); err != nil { // opening does not make a stream
				return nil, err
			}
			if err := s.setCallback(ctx, &in.StreamPath, in.Body.form); err != nil {
				return nil, inAppend(err)
			}
		}
		return s.onFlow(ctx, in.named(), func(string) (*graph.Flow, error) { return s.flows.Open(ctx, in.Scene, in.Group) })
	})
}

// mostWaiting is how many nodes that wait in streams a page counts.
const mostWaiting = 5000

func (s *API) listStreams(ctx context.Context, in *struct {
	All    bool   `query:"all" doc:"also list idle streams"`
	Status string `query:"status" enum:"RUNNING,PENDING,FINISH" doc:"streams of this status, sorted by the last change, the last one first; PENDING = its node waits for a person"`
	Page
}) (*streamList, error) {
	if in.Status != "" {
		return s.listStreamsIn(ctx, graph.Status(in.Status), in.All, in.Page)
	}
	from, err := placeOf(in.Token)
	if err != nil {
		return nil, err
	}
	docs, broken, err := s.store.Flows.Streams(ctx, from.id, in.Limit+1) // one more tells whether there is a next page
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(docs)+len(broken))
	for _, doc := range docs {
		ids = append(ids, doc.ID)
	}
	for _, b := range broken {
		ids = append(ids, b.ID)
	}
	slices.Sort(ids)
	end := "" // of the page; "" = it is the last one
	if len(ids) > in.Limit {
		ids = ids[:in.Limit]
		end = ids[in.Limit-1]
	}
	init, last, err := s.store.Nodes.CountWaiting(ctx, ids, mostWaiting)
	if last != "" { // those behind it were not counted
		end = last
	}
	out := &streamList{}
	if out.Body.Next = after(end); end != "" {
		docs = slices.DeleteFunc(docs, func(doc *graph.Flow) bool { return doc.ID > end })
		broken = slices.DeleteFunc(broken, func(b store.Unreadable) bool { return b.ID > end })
	}
	for _, b := range broken {
		out.Body.Unreadable = append(out.Body.Unreadable, unreadable{b.ID, fmt.Sprintf("the stream %s cannot be read: %v", b.ID, b.Err)})
	}
	if err != nil {
		return nil, err
	}
	views, listed := []view.Stream{}, []*graph.Flow{}
	for _, doc := range docs {
		if v := view.StreamOf(doc, init[doc.ID]); in.All || !v.Idle() {
			views, listed = append(views, v), append(listed, doc)
		}
	}
	out.Body.Streams, err = s.timed(ctx, listed, views)
	return out, err
}

func (s *API) listStreamsIn(ctx context.Context, status graph.Status, all bool, p Page) (*streamList, error) {
	span, err := spanOf(p, false)
	if err != nil {
		return nil, err
	}
	unread := store.Unread{}
	placeIn := func(doc *graph.Flow) place { return place{doc.UpdatedAt, doc.ID} }
	docs, next, err := spanned(ctx, span, func(ctx context.Context, span store.Span) (time.Time, error) {
		return s.store.Flows.Bound(ctx, store.FlowFilter{Status: status}, span)
	}, func(ctx context.Context, span store.Span) ([]*graph.Flow, error) {
		return readable(span, "stream", unread, func(span store.Span) ([]*graph.Flow, []store.Unreadable, error) {
			return s.store.Flows.StreamsIn(ctx, status, span)
		})
	}, placeIn)
	if err != nil {
		return nil, err
	}
	views, shown, left := []view.Stream{}, []*graph.Flow{}, int64(mostWaiting)
	for i, doc := range docs {
		init, _, err := s.store.Nodes.CountWaiting(ctx, []string{doc.ID}, left)
		if err != nil {
			return nil, err
		}
		if v := view.StreamOf(doc, init[doc.ID]); all || !v.Idle() {
			views, shown = append(views, v), append(shown, doc)
		}
		if left -= init[doc.ID]; left == 0 && i < len(docs)-1 {
			next = placeIn(doc).token()
			break
		}
	}
	out := &streamList{}
	out.Body.Unreadable, out.Body.Next = listed(unread), next
	out.Body.Streams, err = s.timed(ctx, shown, views)
	return out, err
}

// timed adds to streams how many of their nodes have ended lately.
func (s *API) timed(ctx context.Context, docs []*graph.Flow, views []view.Stream) ([]view.Stream, error) {
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	speeds, err := s.store.StreamSpeeds(ctx, docs, now)
	for i := range views {
		views[i].SetSpeed(speeds[views[i].Stream])
	}
	return views, err
}

func (s *API) appendNodes(ctx context.Context, in *struct {
	StreamPath
	NodeKeys
	Body body[appending]
}) (*answer[view.Appended], error) {
	nodes := in.Body.form.Nodes
	if n := len(nodes); n < 1 || n > maxBatch {
		return nil, input.Invalid("body.nodes", "has %d nodes; want 1 to %d", n, maxBatch)
	}
	for i := range nodes {
		if nodes[i].ID == "" && in.RequestKey != "" {
			nodes[i].ID = fmt.Sprintf("%s-%d", in.RequestKey, i)
		}
	}
	spec, err := (&form.Flow{Nodes: nodes}).Spec()
	if err != nil {
		return nil, input.Under("body", err)
	}
	if err = errors.Join(flow.ValidateAppend(in.Scene, in.Group, spec.Nodes...), builtin.CheckNodes(spec.Nodes)); err == nil {
		err = s.callbackOfAppend(ctx, &in.StreamPath, &in.Body.form.called)
	}
	var ids []string
	if err == nil {
		ids, err = s.flows.Append(ctx, in.Scene, in.Group, spec.Nodes...)
	}
	if err != nil {
		return nil, inAppend(err)
	}
	return answered(view.Appended{Stream: in.named().id, Nodes: ids}, nil)
}

// inAppend names the fields of a request about a stream.
func inAppend(err error) error {
	return input.Renamed(err, func(field string) string {
		if field == "scene" || field == "group" {
			return "path." + field
		}
		return "body." + field
	})
}

// callbackOfAppend is [API.setCallback] before an append: whoever is called hears of each node, also of one that
// is PENDING at once. A stream that refuses the append keeps the callback that it has.
func (s *API) callbackOfAppend(ctx context.Context, in *StreamPath, c *called) error {
	if c.Callback != nil {
		if err := s.store.Flows.Appendable(ctx, in.named().id); err != nil {
			return err
		}
	}
	return s.setCallback(ctx, in, c)
}

// setCallback sets who is called about a stream, if the request says that.
func (s *API) setCallback(ctx context.Context, in *StreamPath, c *called) error {
	if c.Callback == nil {
		if c.Ext != nil {
			return input.Invalid("ext", "is given without callback")
		}
		return nil
	}
	spec, err := (&form.Flow{Callback: c.Callback, Ext: c.Ext}).Spec()
	if err == nil {
		_, err = s.flows.SetCallback(ctx, in.Scene, in.Group, spec.Callback, spec.Ext)
	}
	if err == nil {
		donePart(ctx)
	}
	return err
}
