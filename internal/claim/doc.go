// Package claim is what a worker of this project (package consumer) and a worker that
// fetches its tasks (pull.Puller) have in common:
//
//	where candidates are   [Seeker], by what a process has seen of the queue ([Sight])
//	how they are claimed   [Claimer]: admit, decide (pure), write, settle
//	whose leases lapse     [Claimer.Judge] and [Claimer.TakeOver], when [Trust] allows it
//
// The rules themselves are in internal/lifecycle, the queries in internal/store. How many tasks
// are wanted and what happens to them is the caller's.
package claim
