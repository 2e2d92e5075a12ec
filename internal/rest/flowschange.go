package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
)

// resolving is what a person decides about a node.
type resolving struct {
	Status graph.NodeStatus `json:"status,omitzero" doc:"SUCCESS or ERROR"`
	Remark string           `json:"remark,omitzero" doc:"what was done, kept with the node"`
}

// answering is what a person answers a node that asks.
type answering struct {
	Values form.Value `json:"values,omitzero" doc:"an object with the fields that the node asks for; it is the node's output"`
	Remark string     `json:"remark,omitzero" doc:"kept with the node"`
}

// Texts about changes that flows and streams have in common.
const (
	resolveSummary = "Resolve a PENDING node as SUCCESS or ERROR"
	resolveMore    = "The nodes behind it continue. Nodes with another status are refused."
)

func (s *API) addFlowChanges() {
	change := rule{access.Operator, tenantOfPath}
	add(s, change, op("cancel-flow", http.MethodPost, flowAt+"/cancel", "Cancel a flow",
		"Running tasks are cancelled, waiting nodes are SKIPPED, and nodes that wait for a person are ERROR. The flow is FINISH when its last running task has ended. A flow that has ended does not change."), func(ctx context.Context, in *struct {
		FlowPath
		Body *body[remarked]
	}) (*flowAnswer, error) {
		return s.cancelFlow(ctx, in.named(), in.Body)
	})
	add(s, change, op("retry-flow", http.MethodPost, flowAt+"/nodes/{node}/retry", "Run a flow again from a node",
		"The node, and all nodes behind it, begin new lives. It is refused while one of them runs."), func(ctx context.Context, in *struct {
		FlowPath
		NodePath
	}) (*flowAnswer, error) {
		return s.retryNode(ctx, in.named(), in.Node)
	})
	add(s, change, op("resolve-node-of-flow", http.MethodPost, flowAt+"/nodes/{node}/resolve", resolveSummary,
		resolveMore+" If the flow is FINISH, only the node changes, and nothing starts."), func(ctx context.Context, in *struct {
		FlowPath
		NodePath
		Body body[resolving]
	}) (*flowAnswer, error) {
		return s.resolveNode(ctx, in.named(), in.Node, in.Body.form)
	})
	add(s, change, op("answer-node", http.MethodPost, flowAt+"/nodes/{node}/answer", "Answer a node that asks a person",
		"The node succeeds, and the values are its output. Each value is checked against the field that the node asks for; list-nodes-of-flow says which."), func(ctx context.Context, in *struct {
		FlowPath
		NodePath
		Body body[answering]
	}) (*flowAnswer, error) {
		f := in.Body.form
		var values any
		if len(f.Values) > 0 {
			values = json.RawMessage(f.Values)
		}
		return s.onNode(ctx, in.named(), in.Node, func(id string) (*graph.Flow, error) { return s.flows.Answer(ctx, id, in.Node, values, f.Remark) })
	})
}

// onFlow changes the flow, or the stream, of a name.
func (s *API) onFlow(ctx context.Context, name flowName, change func(id string) (*graph.Flow, error)) (*flowAnswer, error) {
	if _, err := s.readFlow(ctx, name); err != nil {
		return nil, err
	}
	doc, err := change(name.id)
	return answerFlow(doc, input.Under("body", err))
}

// onNode changes a flow, or a stream, that has the node.
func (s *API) onNode(ctx context.Context, name flowName, node string, change func(id string) (*graph.Flow, error)) (*flowAnswer, error) {
	if _, err := s.readNode(ctx, name, node); err != nil {
		return nil, err
	}
	doc, err := change(name.id)
	return answerFlow(doc, input.Under("body", err))
}

func (s *API) cancelFlow(ctx context.Context, name flowName, b *body[remarked]) (*flowAnswer, error) {
	return s.onFlow(ctx, name, func(id string) (*graph.Flow, error) { return s.flows.Cancel(ctx, id, said(b).Remark) })
}

func (s *API) retryNode(ctx context.Context, name flowName, node string) (*flowAnswer, error) {
	return s.onNode(ctx, name, node, func(id string) (*graph.Flow, error) { return s.flows.RetryFrom(ctx, id, node) })
}

func (s *API) resolveNode(ctx context.Context, name flowName, node string, f *resolving) (*flowAnswer, error) {
	return s.onNode(ctx, name, node, func(id string) (*graph.Flow, error) { return s.flows.Resolve(ctx, id, node, f.Status, f.Remark) })
}
