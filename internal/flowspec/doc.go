// Package flowspec turns the definition of a flow into its document: it checks the definition, fills
// in defaults, orders the nodes, and resolves references in the arguments of nodes.
//
//	graph.Spec ──Build──▶ graph.Flow, with the task of each node
//	template ──Resolve──▶ arguments, when the outputs are there
//
//	build.go     the document, and checks of the whole flow
//	shape.go     the graph: parents, first and last node, cycles, order
//	node.go      one node: checks, and its vertex
//	wait.go      nodes without a task, which wait for a time
//	child.go     nodes that start a flow; that flow
//	ask.go       nodes without a task, which ask a person; what people answer
//	template.go  references in arguments, while the flow is built
//	refs.go      references in stored arguments
//
// All functions are pure.
package flowspec
