// Package flowplan is what becomes of flows, as pure functions: each takes a flow as it is stored
// and returns it as it shall be, with what is to be done in Planned. Nothing is read or written.
//
// The nodes of a flow stand in an order in which every node comes after its parents. So one walk
// from the first changed node to the last decides everything: ends that come together are
// decided together, and each join is judged once.
package flowplan
