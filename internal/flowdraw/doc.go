// Package flowdraw draws the graph of a flow: as a tree for a terminal, as a picture (SVG), and in the
// languages of Graphviz and Mermaid. All functions are pure.
//
//	tree.go      the tree
//	layout.go    where the nodes and edges of a picture are: a layered layout
//	svg.go       the picture
//	language.go  Graphviz and Mermaid
package flowdraw
