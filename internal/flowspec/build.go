package flowspec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of a flow.
const (
	MaxNodes       = 10_000
	maxDescription = 4 << 10
	maxValueBytes  = 64 << 10 // of the caller's own data, a join's context, a condition
	maxAnswerBytes = 16 << 10 // of a person's answers to one node
	maxFlowBytes   = 12 << 20 // of 16 MB: the document grows by reasons and decisions
)

// TaskKey is the key of the task of a node of a flow, of that kind: a stream and a graph may have the
// same key.
func TaskKey(kind, flow, node string) string {
	return cmp.Or(kind, lifecycle.OutcomeFlow) + ":" + flow + ":" + node
}

// NodeType is the type of the tasks that no worker runs: of nodes that start flows, and of nodes with
// elements, which have tasks of their own. Such a task waits
// until the engine ends it.
const NodeType = input.NodeType

// HasTask reports whether a node has a task. A node that waits for a time or asks a person has none.
func HasTask(v *graph.Vertex) bool { return v.For == 0 && v.Until == "" && v.Ask == nil }

// TaskID is the id of the task of a node; "" = it has none.
func TaskID(f *graph.Flow, i int) string {
	v := &f.Nodes[i]
	if !HasTask(v) {
		return ""
	}
	return model.TaskID(f.Tenant, v.Type, TaskKey(f.Kind, f.Key, v.ID))
}

// Build checks the spec and returns the document of a running flow with the key: its first node is
// READY, and the tasks of all nodes are planned. Secrets of the spec are stored unchanged. The error
// joins every mistake, each a [model.InvalidError].
func Build(s *graph.Spec, key string, now time.Time) (*graph.Flow, error) {
	return (&builder{spec: s, key: key, now: now}).build()
}

func (b *builder) build() (*graph.Flow, error) {
	s := b.spec
	f := b.head()
	if n := len(s.Nodes); n > MaxNodes {
		b.bad("nodes", "are %d; at most %d are allowed", n, MaxNodes)
		return nil, errors.Join(b.errs...)
	}
	b.shape = shapeOf(b.spec.Nodes)
	b.errs = append(b.errs, b.shape.errs...)
	f.Nodes = make([]graph.Vertex, len(s.Nodes))
	f.States = make([]graph.State, len(s.Nodes))
	args := make([]bson.RawValue, len(s.Nodes)) // of the tasks
	for i := range s.Nodes {
		args[i] = b.node(f, i)
	}
	if b.argsBytes > maxFlowBytes {
		b.bad("nodes", "have arguments of more than %d bytes as BSON in total: the flow is too large; keep data elsewhere and refer to it", maxFlowBytes)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	f.Planned = make([]graph.Planned, len(s.Nodes))
	for place, i := range b.shape.order {
		f.Planned[place] = graph.Planned{ID: storeID(place), Node: place}
		if n := &s.Nodes[i]; HasTask(&f.Nodes[place]) {
			f.Planned[place].Task = b.task(n, f.ID, args[i])
		}
	}
	if err := checkSize(f); err != nil {
		return nil, err
	}
	return f, nil
}

// builder gathers what is wrong while the document is made.
type builder struct {
	spec  *graph.Spec
	kind  string // graph.KindStream; "" = a graph
	key   string
	now   time.Time
	errs  []error
	shape *shape
	depth int  // of flows around this one
	open  bool // the arguments of the flow are not known yet

	flowArgs  bson.RawValue
	argsBytes int // of all nodes up to now
}

func (b *builder) bad(field, format string, args ...any) {
	b.errs = append(b.errs, input.Invalid(field, format, args...))
}

func (b *builder) add(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// head makes the document without its nodes.
func (b *builder) head() *graph.Flow {
	s := b.spec
	f := &graph.Flow{
		Key: b.key, Tenant: tenantOf(s), Creator: s.Creator, Description: s.Description,
		Status: graph.StatusRunning, Rev: 1, RunningAt: b.now, CreatedAt: b.now, UpdatedAt: b.now, PlannedAt: b.now,
	}
	f.ID = input.RuleName(f.Tenant, f.Key)
	b.checkKey()
	b.add(input.InAddress("key", b.key))
	if s.Tenant != "" {
		b.add(input.Name("tenant", s.Tenant))
		b.add(input.InAddress("tenant", s.Tenant))
	}
	b.add(input.Label("creator", s.Creator))
	b.add(input.Label("category", s.Category))
	if len(s.Description) > maxDescription {
		b.bad("description", "has %d bytes; at most %d are allowed", len(s.Description), maxDescription)
	}
	if !safetext.IsText(s.Description) {
		b.bad("description", "must be valid UTF-8 without a NUL byte")
	}
	var err error
	b.flowArgs, err = codec.EncodeValue("args", s.Args, input.MaxArgsBytes)
	b.add(err)
	f.Callback = s.Callback
	f.Ext, err = Callback(s.Callback, s.Ext)
	b.add(err)
	return f
}

// Callback checks the callback of a flow or a stream, and encodes its ext.
func Callback(c *model.Callback, ext any) (bson.RawValue, error) {
	value, err := codec.EncodeValue("ext", ext, maxValueBytes)
	if c == nil {
		return value, err
	}
	err = errors.Join(err, input.Callback(c))
	if c.OnPending {
		err = errors.Join(err, input.Invalid("callback.on_pending", "is for tasks; that of a flow calls error for every node that waits for a person"))
	}
	return value, err
}

func tenantOf(s *graph.Spec) string {
	if s.Tenant == model.NoTenant {
		return ""
	}
	return s.Tenant
}

// checkKey checks the key, and those of the tasks, which have it in them.
func (b *builder) checkKey() {
	if err := input.Key(b.key); err != nil {
		b.add(err)
		return
	}
	longest := ""
	for i := range b.spec.Nodes {
		id := b.spec.Nodes[i].ID
		if isNodeID(id) && b.spec.Nodes[i].Each != nil {
			id += "/9999/999999" // an element, in a late life
		}
		if len(id) > len(longest) && isNodeID(b.spec.Nodes[i].ID) {
			longest = id
		}
	}
	if n := len(TaskKey("", b.key, longest)); longest != "" && n > input.MaxKeyBytes {
		b.bad("key", "has %d bytes, which makes %d of the key of the task of node %s; at most %d are allowed", len(b.key), n, longest, input.MaxKeyBytes)
	}
}

// task is the task of a node.
func (b *builder) task(n *graph.NodeSpec, flowID string, args bson.RawValue) *model.Task {
	typ, held := n.Type, len(n.After) > 0
	if n.Flow != nil || n.Each != nil {
		typ, held = NodeType, true
	}
	options, priority := n.Options, n.Priority
	if n.Each != nil { // they are those of the elements' tasks
		options, priority = model.Options{}, nil
	}
	return lifecycle.NewTask(lifecycle.Draft{
		Tenant: tenantOf(b.spec), Type: typ, Key: TaskKey(b.kind, b.key, n.ID), Category: b.spec.Category, Creator: b.spec.Creator,
		Args: args, Priority: priority, Options: options, Held: held,
		Origin: &model.Origin{Kind: lifecycle.OutcomeFlow, ID: flowID, Node: n.ID},
	}, b.now)
}

func storeID(place int) string { return fmt.Sprintf("store-%d", place) }

var registry = codec.Registry()

// planBytes is about what a plan has beside its task.
const planBytes = 64

func checkSize(f *graph.Flow) error {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(registry)
	bare := *f
	bare.Planned = nil
	if err := enc.Encode(&bare); err != nil {
		return fmt.Errorf("encoding flow %s: %w", f.ID, err)
	}
	n, task := buf.Len(), []byte(nil)
	for i := range f.Planned { // the driver takes several times as long for them
		if n += planBytes; f.Planned[i].Task != nil {
			task = codec.AppendTask(task[:0], f.Planned[i].Task)
			n += len(task)
		}
	}
	for i := range f.Nodes {
		if f.Nodes[i].Ask != nil {
			n += maxAnswerBytes // which the document will have
		}
		if e := f.Nodes[i].Each; e != nil {
			n += e.Max // a letter for each element
		}
	}
	if n > maxFlowBytes {
		return input.Invalid("nodes", "are too large: the flow has %d bytes; at most %d are allowed", n, maxFlowBytes)
	}
	return nil
}
