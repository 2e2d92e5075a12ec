package flowplan

import "github.com/mscheduler/mscheduler/flow/graph"

// What is to be done with the task of a node.
const (
	DoRelease graph.Action = "release" // it may run
	DoAbort   graph.Action = "abort"   // it is cancelled
	DoRestart graph.Action = "restart" // a new life of it may run
	DoReset   graph.Action = "reset"   // a new life of it waits
	DoAlert   graph.Action = "alert"   // nothing: somebody is told that the node waits for a person
	DoLink    graph.Action = "link"    // nodes of a stream: their tasks are stored
	DoOver    graph.Action = "over"    // nothing: somebody is told that the flow is FINISH, or a parent that it is PENDING
)
