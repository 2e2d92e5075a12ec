package graph

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// Status of a [Flow] (seed 002).
type Status string

// The statuses of flows. There is no INIT: a flow is RUNNING from the write that stores it on, and a
// stream from its first append on. FINISH means only that the flow is over; each node has its own end. An idle
// stream is RUNNING, and a closed stream is FINISH.
const (
	StatusRunning Status = "RUNNING"
	StatusPending Status = "PENDING" // nothing runs, and the last node is PENDING
	StatusFinish  Status = "FINISH"
)

// NodeStatus is the status of a node (seed 002, and SKIPPED).
type NodeStatus string

// The statuses of nodes. SUCCESS, ERROR and SKIPPED are final: neither an engine nor Resolve changes them. A PENDING node ends by Resolve; if it
// is PENDING because of an earlier node, it continues with that node.
const (
	NodeInit    NodeStatus = "INIT" // of a stream: appended, and not linked to the chain yet
	NodeWait    NodeStatus = "WAIT"
	NodeReady   NodeStatus = "READY"
	NodeRunning NodeStatus = "RUNNING" // read from the task, never stored in the flow
	NodePending NodeStatus = "PENDING"
	NodeSuccess NodeStatus = "SUCCESS"
	NodeError   NodeStatus = "ERROR"
	NodeSkipped NodeStatus = "SKIPPED"
)

// KindStream is the Kind of a stream, an endless chain of nodes (seed 002).
const KindStream = "stream"

// Flow is one document of the collection flows: the graph, and the state of each node. Every decision
// about a flow is one write on this document, guarded by Rev.
//
// The document of a stream holds a window of the chain: the linked nodes that have not ended, and some
// that have. The other nodes are in flow_nodes.
type Flow struct {
	ID          string        `bson:"_id"`            // tenant/key; of a stream scene/group
	Kind        string        `bson:"kind,omitempty"` // KindStream; "" = a set
	Key         string        `bson:"key"`
	Tenant      string        `bson:"tenant,omitempty"`
	Creator     string        `bson:"creator,omitempty"`
	Description string        `bson:"description,omitempty"`
	Ext         bson.RawValue `bson:"ext,omitempty"`

	Callback *model.Callback `bson:"callback,omitempty"` // secrets are sealed
	// Parent is the node that started the flow, its life as generation; nil = none did.
	Parent *model.Origin `bson:"parent,omitempty"`

	// Trace is the span that started the flow, or that last retried it, to which its tasks belong; nil =
	// none. A node of a stream has the trace of its append in its task, so of a stream it is that of the
	// last retry.
	Trace *model.Trace `bson:"trace,omitempty"`

	Status    Status    `bson:"status"`
	Reason    string    `bson:"reason,omitempty"` // why it ended early, or waits for a person
	Closed    bool      `bson:"closed,omitempty"` // it ended early: nothing starts any more
	Rev       int64     `bson:"rev"`              // rises on every decision
	Decision  string    `bson:"decision,omitempty"`
	RunningAt time.Time `bson:"running_at,omitempty"` // the task of a node may run: since then
	CreatedAt time.Time `bson:"created_at"`
	UpdatedAt time.Time `bson:"updated_at"`
	EndedAt   time.Time `bson:"ended_at,omitempty"`
	DeleteAt  time.Time `bson:"delete_at,omitempty"` // the document goes then

	// What follows is of streams.
	Scene     string    `bson:"scene,omitempty"`
	Group     string    `bson:"group,omitempty"`
	First     string    `bson:"first,omitempty"`      // the first node of the chain; it may be deleted by now
	Appended  int64     `bson:"appended,omitempty"`   // the number of the last node that was appended
	Trimmed   int       `bson:"trimmed,omitempty"`    // nodes of the chain before Nodes; no plan is about them
	Backlog   bool      `bson:"backlog,omitempty"`    // nodes wait to be linked, and there is no room
	DueAt     time.Time `bson:"due_at,omitempty"`     // somebody looks for nodes to link then; of a set the earliest of its nodes
	LookUntil time.Time `bson:"look_until,omitempty"` // an append may bring nodes to light until then

	Nodes  []Vertex `bson:"nodes"`  // every node after its parents
	States []State  `bson:"states"` // of the nodes, in their order

	Planned   []Planned `bson:"planned,omitempty"`
	PlannedAt time.Time `bson:"planned_at,omitempty"`

	// Created says, of a flow that Start returns, that this Start has stored it; false = the key had a
	// flow. It is never stored.
	Created bool `bson:"-"`
}

// Vertex is the definition of a node, which never changes. Filters and arguments with references are
// stored as text, because some servers do not store field names that start with $.
type Vertex struct {
	ID        string        `bson:"id"`
	Type      string        `bson:"type,omitempty"`   // of its task; "" = it has none
	For       time.Duration `bson:"for_ms,omitempty"` // of a node that waits: how long
	Until     string        `bson:"until,omitempty"`  // of a node that waits: a time, or a reference to one, as JSON
	Ask       *Ask          `bson:"ask,omitempty"`
	Flow      *Spec         `bson:"flow,omitempty"`  // of a node that starts a flow; each JSON value in it is text
	Each      *Each         `bson:"each,omitempty"`  // of a node with elements; its items are text
	Task      *model.Task   `bson:"task,omitempty"`  // of a node with elements: a task of it, without key and arguments
	After     []int         `bson:"after,omitempty"` // places of the parents
	When      []string      `bson:"when,omitempty"`  // of each parent: a filter as JSON; "" = always
	Join      Strategy      `bson:"join,omitempty"`
	N         int           `bson:"n,omitempty"`
	These     []int         `bson:"these,omitempty"` // places of parents
	Custom    string        `bson:"custom,omitempty"`
	Context   bson.RawValue `bson:"context,omitempty"` // what the custom join is given first
	OnFailure Policy        `bson:"on_failure,omitempty"`
	Args      string        `bson:"args,omitempty"` // JSON with references to outputs; "" = the task has its arguments

	Prev      string    `bson:"prev,omitempty"`       // of a stream: the node before it in the chain
	CreatedAt time.Time `bson:"created_at,omitempty"` // of a stream: when it was appended
}

// State is the changing part of a node.
type State struct {
	Status  NodeStatus    `bson:"s"`
	Reason  string        `bson:"reason,omitempty"`  // why it waits for a person, was skipped or failed
	Own     bool          `bson:"own,omitempty"`     // PENDING by its own failure or its join's verdict, not by an earlier node
	Life    int64         `bson:"life,omitempty"`    // how often a person has restarted it
	Context bson.RawValue `bson:"context,omitempty"` // of a custom join
	Output  bson.RawValue `bson:"output,omitempty"`  // of a node that asks: the answers
	// Elements has a letter for each element: w waits for its turn, r may run, p is Pending, s succeeded, e failed.
	Elements string    `bson:"elements,omitempty"`
	DueAt    time.Time `bson:"due_at,omitempty"` // READY, and waits for this time; WAIT, and since then an engine is to ask its custom join
	At       time.Time `bson:"at"`               // since when it has the status
}

// Planned is a decision about a node that an engine must carry out.
type Planned struct {
	ID   string `bson:"id"`
	Node int    `bson:"node"`         // its place in the flow, in a stream counted from the chain's first; -1 = none: the stream has had none
	Do   string `bson:"do,omitempty"` // with the task, see internal/flowplan; "" = only the node's record is stored
	N    int    `bson:"n,omitempty"`  // of a link: how many nodes, from Node on
	// Task is inserted unless it exists.
	Task *model.Task `bson:"task,omitempty"`
	Life int64       `bson:"life,omitempty"` // of the node, when it was decided
	// Resolved says of an abort that a person has resolved the node: a Pending task is ManuallyProcessed by that.
	Resolved bool   `bson:"resolved,omitempty"`
	Tell     string `bson:"tell,omitempty"` // the error_info of a callback that is sent; of Over "" for none

	Args bson.RawValue `bson:"-"` // of a release or restart, where the node refers to outputs; never stored
	// Elements are those that may run now, or that are cancelled with the node's last life, by their places.
	Elements []int           `bson:"elements,omitempty"`
	Items    []bson.RawValue `bson:"-"` // of a release or restart: the arguments of each element; never stored
	Links    []*Node         `bson:"-"` // of a link: the records with the tasks; nil = they are to be read
}

// Node is one document of the collection flow_nodes: what operators and queries see of a node. One
// that is INIT has its task, which leaves it when the node is linked.
type Node struct {
	ID        string     `bson:"_id"` // flow/node
	FlowID    string     `bson:"flow_id"`
	Tenant    string     `bson:"tenant,omitempty"`
	Node      string     `bson:"node"`
	Type      string     `bson:"type,omitempty"` // "" = it has no task
	TaskID    string     `bson:"task_id,omitempty"`
	After     []string   `bson:"after,omitempty"`
	Status    NodeStatus `bson:"status"`
	Reason    string     `bson:"reason,omitempty"`
	Life      int64      `bson:"life,omitempty"`
	Rev       int64      `bson:"rev"` // of the flow, when it became that
	At        time.Time  `bson:"at"`
	CreatedAt time.Time  `bson:"created_at"`
	DeleteAt  time.Time  `bson:"delete_at,omitempty"`

	// What follows is of streams.
	Position  int64       `bson:"position,omitempty"` // in the chain, from 1 on
	OnFailure Policy      `bson:"on_failure,omitempty"`
	No        int64       `bson:"no,omitempty"` // of INIT: nodes are linked in this order
	Task      *model.Task `bson:"task,omitempty"`
}
