// Package flowspec is what lies between the definition of a flow and its document: checks,
// defaults, the order of the nodes, and the references in the arguments of nodes.
//
//	graph.Spec ──Build──▶ graph.Flow, with the task of each node
//	template ──Resolve──▶ arguments, when the outputs are there
//
//	build.go     the document, and what is wrong with the flow as a whole
//	shape.go     the graph: parents, first and last node, cycles, order
//	node.go      what is wrong with one node, and its vertex
//	wait.go      nodes without a task, which wait for a time
//	child.go     nodes that start a flow; that flow
//	ask.go       nodes without a task, which ask a person; what people answer
//	template.go  references in arguments, while the flow is built
//	refs.go      references in stored arguments
//
// Everything is pure.
package flowspec
