package graph

import "github.com/mscheduler/mscheduler/model"

// Spec is the definition of a flow: a graph of nodes without cycles, with one first and one last
// node. Its JSON and YAML names are those of the fields in snake case.
type Spec struct {
	// Key names the flow within its tenant. A flow of the same key exists once: starting it again
	// changes nothing. "" = an automatic one.
	Key         string
	Tenant      string // "" = none
	Creator     string
	Category    string // of the nodes' tasks
	Description string
	Args        any // any JSON value; nodes refer to it with {"$arg": "path"}
	Ext         any // any JSON value of the caller's own
	Nodes       []NodeSpec
}

// NodeSpec is one node of a flow: one task.
type NodeSpec struct {
	// ID names the node within the flow: 1 to 64 of a-z A-Z 0-9 _ -. Seed 002's null node N/A is no
	// name. A node that is appended to a stream may have none, and gets an automatic one.
	ID    string
	Type  string   // of the task
	After []string // the node's parents; none = it is the first node

	// Args is any JSON value. In it {"$output": "pay.receipt.no"} stands for that field of the
	// output of the node pay, and {"$arg": "order.id"} for that of the flow's Args. What is not
	// there is null. {"$literal": v} is v as it is.
	Args any

	// When has conditions on the edges from parents, by parent: a MongoDB filter on the parent's
	// output, which lies in the field output. An edge whose condition does not hold is not taken,
	// and its parent counts as skipped.
	When map[string]any

	Join      Join
	OnFailure Policy // "" = suspend
	Priority  *int   // nil = 5
	Options   model.Options
}

// Join says when a node with parents starts. The zero value wants all of them to succeed. The first
// node has no parents; it may name all_ended.
//
//	              parent failed        parent skipped    all parents skipped
//	all_succeeded PENDING              is left out       SKIPPED
//	all_ended     counts as ended      is left out       SKIPPED
//	at_least      is no success        is no success     SKIPPED
//	these         PENDING if named     SKIPPED if named  SKIPPED
//	custom        the function says    is told of it     SKIPPED
//
// A node is SKIPPED if at_least cannot be met because of skipped parents alone, or a parent that
// these names was skipped, whatever became of the others. So the order of ends does not matter.
type Join struct {
	Strategy Strategy // "" = all_succeeded
	N        int      // of at_least
	Nodes    []string // of these
	Custom   string   // the id under which the function is registered, see flow.Config
	Context  any      // any JSON value, what a custom function is given first
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

// Policy is what the failure of a node means to its flow, after the retries of its task (seed 002).
type Policy string

// The policies.
const (
	Suspend  Policy = "suspend"  // the node is PENDING, and so is what hangs on it, until somebody resolves it
	Continue Policy = "continue" // the node is ERROR, and its children judge by their joins
	End      Policy = "end"      // the flow ends: what runs is cancelled, what waits does not run
)
