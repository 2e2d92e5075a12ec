// Package flowplan decides about flows. Its functions are pure: each takes a stored flow and returns
// the flow after a decision, with the actions to carry out in Planned. Nothing is read or written.
//
// In a flow every node comes after its parents. So one walk from the first changed node to the last
// decides everything: ends that arrive together are decided together, and each join is judged once.
package flowplan
