// Package flow runs graphs of tasks: a flow has nodes, each one task, and a node starts when its
// parents have ended as its join wants. Definitions and documents are in package
// [github.com/mscheduler/mscheduler/flow/graph].
//
// A flow is one document. What the ends of tasks, or people, make of it is one guarded write on
// that document, which says what is to be done next; any engine carries it out. So a process that
// dies anywhere leaves nothing half done: the next engine goes on.
//
// The engine looks ten times a second while nodes have ended within the last ten seconds, each
// second while a node runs, and else every five seconds.
package flow
