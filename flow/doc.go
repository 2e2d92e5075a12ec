// Package flow runs graphs of tasks. A flow has nodes, most of them one task each. A node starts when
// its parents have ended as its join requires. Definitions and documents are in package
// [github.com/mscheduler/mscheduler/flow/graph].
//
// A stream is a flow that does not end: [Flows.Append] adds nodes to a chain, from any process, and one
// runs at a time.
//
// A flow is one document. Each decision about it, after the end of a task or by a person, is one
// guarded write on that document. The write also records what must be done next, and any engine does
// it. A process may die at any point: the next engine continues.
//
// An engine learns at once of nodes that end in its own process, so run an engine beside each worker.
// It finds the other ends with queries. The first query follows 20 ms after a node has started. Then
// the engine queries ten times a second for ten seconds, once a second while a node runs, and every
// five seconds while none runs. The engines of flows and periodic rules of one process share their
// queries.
package flow
