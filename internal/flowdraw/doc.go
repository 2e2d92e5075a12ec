// Package flowdraw draws the graph of a flow as text: as a tree for a terminal, and in the languages
// of Graphviz and Mermaid, which make pictures of it.
package flowdraw
