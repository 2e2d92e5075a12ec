// Package graph holds the documents of flows: what a caller defines ([Spec]), what is stored of a
// flow ([Flow], collection flows) and of each of its nodes ([Node], collection flow_nodes).
package graph
