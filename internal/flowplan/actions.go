package flowplan

import "github.com/mscheduler/mscheduler/flow/graph"

// The actions on the task of a node.
const (
	DoRelease  graph.Action = "release"  // it may run
	DoAbort    graph.Action = "abort"    // it is cancelled
	DoRestart  graph.Action = "restart"  // a new life of it may run
	DoReset    graph.Action = "reset"    // a new life of it waits
	DoAlert    graph.Action = "alert"    // no change; the node begins to wait for a person, which is reported
	DoLink     graph.Action = "link"     // nodes of a stream: their tasks are stored
	DoOver     graph.Action = "over"     // no change; FINISH is reported, or to the parent flow also PENDING
	DoElements graph.Action = "elements" // more elements of a node may run
	DoDrop     graph.Action = "drop"     // elements of a node's last life are cancelled
	DoKeep     graph.Action = "keep"     // of the flow, which was over and goes on: no time is set to delete its records
	DoGather   graph.Action = "gather"   // the task of a node with elements ends, with their outputs
)
