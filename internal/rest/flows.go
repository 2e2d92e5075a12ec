package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// FlowPath is the id of a flow, tenant/key, as a path.
type FlowPath struct {
	Tenant string `path:"tenant" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"tenant of the flow; - for a flow without one"`
	Key    string `path:"key" maxLength:"400" doc:"key of the flow, percent-encoded where it has a slash"`
}

func (p *FlowPath) named() flowName { return flowName{p.Tenant + "/" + p.Key, ""} }

const flowAt = "/flows/{tenant}/{key}"

// flowName names a flow, or a stream if kind is that. The two share their ids: a stream of the scene acme has
// one that a flow of the tenant acme could have.
type flowName struct{ id, kind string }

// flowAnswer is a flow without its nodes.
type flowAnswer struct {
	ETag string `header:"ETag" doc:"the rev of the flow"`
	Body view.Flow
}

func answerFlow(doc *graph.Flow, err error) (*flowAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &flowAnswer{ETag: etag(doc.Rev), Body: view.FlowOf(doc)}, nil
}

type flowList struct {
	Body struct {
		Flows      []view.Flow  `json:"flows"`
		Unreadable []unreadable `json:"unreadable,omitempty" doc:"flows on the way to the end of the page that this release cannot read; none of their nodes starts"`
		Next       string       `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

type nodeList struct {
	Body struct {
		Nodes []view.Node `json:"nodes" doc:"each after its parents"`
		Next  string      `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

func (s *API) addFlows() {
	s.addFlowStarts()
	s.addFlowChanges()
	read := rule{access.Viewer, tenantOfPath}
	add(s, rule{access.Viewer, tenantOfFilter}, op("list-flows", http.MethodGet, "/flows", "List flows, most recently changed first",
		"A flow that changes meanwhile moves to the first page. "+sparse+" Streams have a list of their own."), s.listFlows)
	add(s, read, op("get-flow", http.MethodGet, flowAt, "Get a flow without its nodes", ""), func(ctx context.Context, in *struct{ FlowPath }) (*flowAnswer, error) {
		return answerFlow(s.readFlow(ctx, in.named()))
	})
	add(s, read, op("list-nodes-of-flow", http.MethodGet, flowAt+"/nodes", "List the nodes of a flow with their states and outputs", "A node is RUNNING while a worker runs its task."),
		func(ctx context.Context, in *struct {
			FlowPath
			NodesPage
		}) (*nodeList, error) {
			return s.listNodes(ctx, in.named(), in.NodesPage)
		})
	drawn := op("draw-flow", http.MethodGet, flowAt+"/picture", "Draw a flow", "The graph as a picture with statuses and times (SVG), or in the language of Graphviz or Mermaid; or the times of the nodes as a Gantt chart (SVG).")
	drawn.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{}}}
	for _, is := range drawings {
		drawn.Responses["200"].Content[is] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	add(s, read, drawn, s.drawFlow)
	add(s, read, op("explain-node-of-flow", http.MethodGet, flowAt+"/nodes/{node}/explain", "Explain why a node has its status, and what would start it", ""), func(ctx context.Context, in *struct {
		FlowPath
		NodePath
	}) (*answer[view.ExplainedNode], error) {
		return s.explainNode(ctx, in.named(), in.Node)
	})
	add(s, read, op("wait-for-flow", http.MethodGet, flowAt+"/wait", "Wait until a flow is FINISH, or PENDING: waits for a person",
		"Answers with the flow then, or as it is when the time is over: its status says which."), s.waitForFlow)
}

// readFlow reads the flow, or the stream, of a name.
func (s *API) readFlow(ctx context.Context, name flowName) (*graph.Flow, error) {
	doc, err := s.flows.Get(ctx, name.id)
	if err == nil && doc.Kind != name.kind {
		err = fmt.Errorf("%w: %s", store.ErrNoFlow, name.id)
	}
	return doc, err
}

func (s *API) listFlows(ctx context.Context, in *struct {
	Tenant string `query:"tenant" doc:"tenant; - for flows without one"`
	Status string `query:"status" enum:"RUNNING,PENDING,FINISH"`
	Key    string `query:"key" maxLength:"400" doc:"flows of the tenant whose key begins with this text, sorted by it; needs tenant"`
	Sort   string `query:"sort" enum:"-updated_at,updated_at" default:"-updated_at" doc:"by the last change: - = the last one first"`
	Page
}) (*flowList, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	f := store.FlowFilter{Tenant: tenant, Status: graph.Status(in.Status), Graphs: true}
	unread := store.Unread{}
	if in.Key != "" {
		docs, next, err := begun(tenant, "key", in.Token, "flow", in.Limit, unread, func(after string, limit int) ([]*graph.Flow, []store.Unreadable, error) {
			return s.store.Flows.Named(ctx, tenant, in.Key, after, limit)
		}, func(doc *graph.Flow) string { return doc.ID }, func(doc *graph.Flow) bool { return f.Status == "" || doc.Status == f.Status })
		return answerFlows(docs, unread, next, err)
	}
	span, err := spanOf(in.Page, in.Sort == "updated_at")
	if err != nil {
		return nil, err
	}
	docs, next, err := spanned(ctx, span, func(ctx context.Context, span store.Span) (time.Time, error) {
		return s.store.Flows.Bound(ctx, f, span)
	}, func(ctx context.Context, span store.Span) ([]*graph.Flow, error) {
		return readable(span, "flow", unread, func(span store.Span) ([]*graph.Flow, []store.Unreadable, error) {
			return s.store.Flows.List(ctx, f, span)
		})
	}, func(doc *graph.Flow) place { return place{doc.UpdatedAt, doc.ID} })
	return answerFlows(docs, unread, next, err)
}

func answerFlows(docs []*graph.Flow, unread store.Unread, next string, err error) (*flowList, error) {
	if err != nil {
		return nil, err
	}
	out := &flowList{}
	out.Body.Flows, out.Body.Unreadable, out.Body.Next = []view.Flow{}, listed(unread), next
	for _, doc := range docs {
		out.Body.Flows = append(out.Body.Flows, view.FlowOf(doc))
	}
	return out, nil
}

// NodesPage is a page of the nodes of a flow.
type NodesPage struct {
	Page
	Node    string `query:"node" pattern:"^[a-zA-Z0-9_-]{1,64}$" doc:"only the node of this id"`
	Outputs bool   `query:"outputs" default:"true" doc:"false: without the outputs of tasks. With them, a page also ends when they have about 8 MiB together"`
}

func (s *API) listNodes(ctx context.Context, name flowName, p NodesPage) (*nodeList, error) {
	from, err := placeOf(p.Token)
	if err != nil {
		return nil, err
	}
	doc, err := s.readFlow(ctx, name)
	if err != nil {
		return nil, err
	}
	begin := 0
	if p.Token != "" { // the position of the last node. Nodes leave a stream at its beginning
		position, err := strconv.Atoi(from.id)
		if begin = max(0, position-doc.Trimmed); err != nil || position < 1 || begin > len(doc.Nodes) {
			return nil, input.Invalid("page_token", "is %q; want next of the page before", p.Token)
		}
	}
	read := view.NodesFrom
	if !p.Outputs {
		read = view.NodeStates
	}
	out := &nodeList{}
	out.Body.Nodes = []view.Node{}
	if p.Node != "" {
		begin = slices.IndexFunc(doc.Nodes, func(v graph.Vertex) bool { return v.ID == p.Node })
		if p.Limit = 1; begin < 0 {
			return out, nil
		}
	}
	if out.Body.Nodes, err = read(ctx, s.store, doc, begin, p.Limit); err != nil {
		return nil, err
	}
	if end := begin + len(out.Body.Nodes); end < len(doc.Nodes) && p.Node == "" {
		out.Body.Next = after(strconv.Itoa(doc.Trimmed + end))
	}
	return out, nil
}

// drawings are the media types of what [view.Drawings] draw.
var drawings = map[string]string{"svg": "image/svg+xml", view.Gantt: "image/svg+xml", "dot": "text/vnd.graphviz; charset=utf-8", "mermaid": "text/vnd.mermaid; charset=utf-8"}

type drawingAnswer struct {
	Type   string `header:"Content-Type"`
	Policy string `header:"Content-Security-Policy" doc:"a picture that is opened by itself loads and runs nothing"`
	Body   []byte
}

func (s *API) drawFlow(ctx context.Context, in *struct {
	FlowPath
	Format string `query:"format" enum:"svg,dot,mermaid,gantt" default:"svg" doc:"gantt: the times of the nodes as a picture (SVG), in the order of their starts"`
}) (*drawingAnswer, error) {
	doc, err := s.readFlow(ctx, in.named())
	if err != nil {
		return nil, err
	}
	nodes, err := view.NodeStates(ctx, s.store, doc, 0, len(doc.Nodes))
	if err != nil {
		return nil, err
	}
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	return &drawingAnswer{drawings[in.Format], "default-src 'none'; style-src 'unsafe-inline'; sandbox", []byte(view.Drawings[in.Format](doc, nodes, now))}, nil
}

// NodePath names a node of a flow.
type NodePath struct {
	Node string `path:"node" pattern:"^[a-zA-Z0-9_-]{1,64}$" doc:"id of the node"`
}

// readNode reads a flow that has the node.
func (s *API) readNode(ctx context.Context, name flowName, node string) (*graph.Flow, error) {
	doc, err := s.readFlow(ctx, name)
	if err == nil && !slices.ContainsFunc(doc.Nodes, func(v graph.Vertex) bool { return v.ID == node }) {
		err = huma.Error404NotFound(name.id + " has no node " + node)
	}
	return doc, err
}

func (s *API) explainNode(ctx context.Context, name flowName, node string) (*answer[view.ExplainedNode], error) {
	doc, err := s.readFlow(ctx, name)
	if err != nil {
		return nil, err
	}
	return answered(view.ExplainNode(ctx, s.flows, s.store, doc, node))
}

func (s *API) waitForFlow(ctx context.Context, in *struct {
	FlowPath
	Timeout int64 `query:"timeout_ms" minimum:"0" maximum:"50000" default:"30000" doc:"how long to wait"`
}) (*flowAnswer, error) {
	doc, err := s.readFlow(ctx, in.named())
	if err != nil {
		return nil, err
	}
	if doc.Status != graph.StatusFinish && doc.Status != graph.StatusPending {
		wait, cancel := s.patient(ctx, time.Duration(in.Timeout)*time.Millisecond)
		defer cancel()
		if doc, err = s.flows.Await(wait, doc.ID); wait.Err() != nil && ctx.Err() == nil {
			doc, err = s.readFlow(ctx, in.named())
		}
		if err == nil {
			err = s.mayStill(ctx)
		}
	}
	return answerFlow(doc, err)
}
