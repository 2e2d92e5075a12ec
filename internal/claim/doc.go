// Package claim is what a worker of this project (package consumer) and a worker that
// fetches its tasks (pull.Puller) have in common: where they look for candidates, and
// what becomes of a task over a lapsed lease. The rules themselves are in model, the queries
// in internal/store; how many tasks are wanted and what happens to them is the caller's.
package claim
