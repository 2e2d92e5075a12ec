// Package flow runs graphs of tasks: a flow has nodes, each one task, and a node starts when its
// parents have ended as its join wants. Definitions and documents are in package
// [github.com/mscheduler/mscheduler/flow/graph].
//
// A flow is one document. What the ends of tasks, or people, make of it is one guarded write on
// that document, which says what is to be done next; any engine carries it out. So a process that
// dies anywhere leaves nothing half done: the next engine goes on.
//
// An engine hears at once of nodes that end in its own process. It finds the others by looking: 20 ms
// after it has let a node start, and then less and less often: ten times a second for ten seconds,
// each second while a node runs, and every five seconds while none does. So run an engine beside each
// worker. The engines of flows and of periodic rules of one process share their looks.
package flow
