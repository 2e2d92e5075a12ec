// Package promises is the work of a deployment in which everything goes wrong, and the checks of what
// became of it. The simulation (integration/sim) and the chaos on real processes (integration/chaos)
// share it.
//
//	work.go     tasks, a flow, a plan and a rule
//	stored.go   what the database holds of them, and what has not ended
//	check.go    the promises of docs/architecture.md, against what the handlers did
package promises
