package flowplan

// The actions on the task of a node.
const (
	DoRelease  = "release"  // it may run
	DoAbort    = "abort"    // it is cancelled
	DoRestart  = "restart"  // a new life of it may run
	DoReset    = "reset"    // a new life of it waits
	DoAlert    = "alert"    // no change; the node begins to wait for a person, which is reported
	DoLink     = "link"     // nodes of a stream: their tasks are stored
	DoOver     = "over"     // no change; FINISH is reported, or to the parent flow also PENDING
	DoElements = "elements" // more elements of a node may run
	DoDrop     = "drop"     // elements of a node's last life are cancelled
	DoKeep     = "keep"     // of the flow, which was over and goes on: no time is set to delete its records
	DoGather   = "gather"   // the task of a node with elements ends, with their outputs
)
