// Package graph holds the documents of flows: the definition by a caller ([Spec]), the stored flow
// ([Flow], collection flows) and the record of each node ([Node], collection flow_nodes).
package graph
