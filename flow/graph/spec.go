package graph

import (
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Spec is the definition of a flow: a graph of nodes without cycles, with one first and one last
// node. In files and API requests the fields have these names in snake case. encoding/json does not read it.
type Spec struct {
	// Key names the flow within its tenant. A key has at most one flow: a second start changes
	// nothing. "" = a generated key.
	Key         string `bson:"key,omitempty"`
	Tenant      string `bson:"tenant,omitempty"` // "" = none
	Creator     string `bson:"creator,omitempty"`
	Category    string `bson:"category,omitempty"` // of the nodes' tasks
	Description string `bson:"description,omitempty"`
	Args        any    `bson:"args,omitempty"` // any JSON value; nodes refer to it with {"$arg": "path"}
	Ext         any    `bson:"ext,omitempty"`  // any JSON value of the caller's own
	// Callback configures signed requests about the flow. Success is called when the flow is FINISH,
	// however its nodes ended. Error is called when a node is PENDING and a person must resolve it;
	// nodes that only hang on it cause no call. nil = no calls.
	Callback *model.Callback `bson:"callback,omitempty"`
	Nodes    []NodeSpec      `bson:"nodes,omitempty"`
}

// NodeSpec is one node of a flow. A node is a task, starts another flow, or has no task and waits for
// a time ([Wait]) or for a person ([Ask]).
type NodeSpec struct {
	// ID names the node within the flow: 1 to 64 of a-z A-Z 0-9 _ -. N/A, the null node of seed
	// 002, is not allowed. In a stream "" = a generated id.
	ID    string   `bson:"id,omitempty"`
	Type  string   `bson:"type,omitempty"`  // of the task; "" = the node has none
	After []string `bson:"after,omitempty"` // the node's parents; none = it is the first node

	// Args is any JSON value. {"$output": "pay.receipt.no"} refers to a field in the output of the
	// node pay, and {"$arg": "order.id"} to a field in the Args of the flow. A missing value is
	// null. {"$literal": v} is v unchanged.
	Args any `bson:"args,omitempty"`

	// When has conditions on the edges from parents, by parent. A condition is a MongoDB filter on
	// {output: <the parent's output>}. If it does not hold, the edge is not taken, and the parent
	// counts as skipped.
	When map[string]any `bson:"when,omitempty"`

	// A node with Wait succeeds at a given time. A node with Ask is PENDING until a person answers.
	// Neither has a task.
	Wait *Wait `bson:"wait,omitempty"`
	Ask  *Ask  `bson:"ask,omitempty"`

	// Flow makes a node that starts a flow and waits for its end; no worker is held meanwhile. The
	// key of that flow follows from this one's, the node and its life, so Key and Tenant are empty;
	// Args of the node, if given, are those of the flow. The output of its last node is that of this
	// one. Flows nest at most 8 deep.
	Flow *Spec `bson:"flow,omitempty"`

	// Each makes a node with one task of its Type for each element of a list. In its Args
	// {"$item": "id"} stands for that field of the element, {"$item": ""} for the element. The
	// output of the node is the list of the tasks' outputs, in order.
	Each *Each `bson:"each,omitempty"`

	Join      Join          `bson:"join,omitempty"`
	OnFailure Policy        `bson:"on_failure,omitempty"` // "" = suspend; a Pending task has not failed yet
	Priority  *int          `bson:"priority,omitempty"`   // nil = 5
	Options   model.Options `bson:"options,omitempty"`
}

// Wait says how long a node waits after its join lets it start. One of the fields is given.
type Wait struct {
	For time.Duration `bson:"for_ms,omitempty"` // at most ten years
	// Until is a time, as text of RFC 3339, or a reference to such a text: {"$output": "pay.due"}
	// or {"$arg": "order.deadline"}. A time that has passed does not delay. If the output has no
	// time there, the node fails.
	Until any `bson:"until,omitempty"`
}

// Each defines a list; the node runs one task for each of its elements. If a task fails, the node fails when all
// have ended; with the policy end, at once.
type Each struct {
	// Items is a list, or a reference to one: {"$output": "order.parcels"} or {"$arg": "parcels"}.
	// The node fails if Items is not a list or is too long.
	Items any `bson:"items,omitempty"`
	Limit int `bson:"limit,omitempty"` // tasks that may run at once; 0 = all
	Max   int `bson:"max,omitempty"`   // elements that are allowed, at most 10,000; 0 = 1,000
}

// Ask is what a person is asked for. The answers are the output of the node.
type Ask struct {
	Title  string  `bson:"title" json:"title"` // what is to be decided, for people; 1 to 4,096 bytes
	Fields []Field `bson:"fields,omitempty" json:"fields,omitempty"`
}

// Field is one value that a person is asked for; a node asks for at most 32.
type Field struct {
	Name     string   `bson:"name" json:"name"` // 1 to 64 of a-z A-Z 0-9 _ -
	Kind     string   `bson:"kind" json:"kind"` // string, number, bool or choice; "" = string
	Required bool     `bson:"required,omitempty" json:"required,omitempty"`
	Choices  []string `bson:"choices,omitempty" json:"choices,omitempty"` // of a choice, at most 100
	Help     string   `bson:"help,omitempty" json:"help,omitempty"`       // for people; at most 1,024 bytes
}

// Join is the rule by which a node with parents starts. The zero value requires the success of all
// parents. The first node has no parents; its strategy may be all_ended.
//
//	              parent failed        parent skipped    all parents skipped
//	all_succeeded PENDING              does not count    SKIPPED
//	all_ended     counts as ended      does not count    SKIPPED
//	at_least      is no success        is no success     SKIPPED
//	these         PENDING if named     SKIPPED if named  SKIPPED
//	custom        function decides     function decides  SKIPPED
//
// With at_least, the node is SKIPPED if the skipped parents alone make N impossible. With these, it is
// SKIPPED if a named parent is skipped. The ends of the other parents do not change that, so the order
// of ends does not matter.
type Join struct {
	Strategy Strategy `bson:"strategy,omitempty"` // "" = all_succeeded
	N        int      `bson:"n,omitempty"`        // of at_least
	Nodes    []string `bson:"nodes,omitempty"`    // of these
	Custom   string   `bson:"custom,omitempty"`   // the id of the function in flow.Config.Joins
	Context  any      `bson:"context,omitempty"`  // the first saved value of a custom join; any JSON value
}

// Strategy is how a [Join] judges parents (seed 002).
type Strategy string

// The strategies.
const (
	AllSucceeded Strategy = "all_succeeded"
	AllEnded     Strategy = "all_ended"
	AtLeast      Strategy = "at_least" // N of them succeeded
	These        Strategy = "these"    // the named ones succeeded
	Custom       Strategy = "custom"   // a function decides
)

// Policy is the effect of a failed node on its flow (seed 002). A node fails when the retries of its
// task are exhausted.
type Policy string

// The policies.
const (
	Suspend  Policy = "suspend"  // the node and the nodes behind it are PENDING until a person resolves it
	Continue Policy = "continue" // the node is ERROR, and its children follow their joins
	End      Policy = "end"      // the flow ends: running tasks are cancelled, waiting nodes are SKIPPED, nodes that wait for a person are ERROR
)
