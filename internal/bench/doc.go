// Package bench measures how fast the product is, beside what the database itself can do
// with the same writes on the same server: the command mscheduler bench.
//
//	raw.go       the yardstick: the writes of a task's life in the cheapest form known;
//	             rawresults.go the same where each task ends with another result
//	scenario.go  the list of scenarios, and how one is run:
//	             arena (a database of its own) ─▶ raw ─▶ the scenario ─▶ Result
//	drain.go     preloaded, fleet, delayed: a backlog of no-op tasks
//	paced.go     a fixed rate, and how late handlers start
//	steady.go    sent as fast as they finish, for minutes
//	idle.go      what workers cost that have nothing to do
//	takeover.go  a worker killed with executions
//	archive.go   finished tasks move to the history beside a steady load
//	periodic.go  rules of every second, and many rules that seldom fire
//	send.go      producers only
//
//	arena.go     the server and the fresh database; dropped afterwards
//	meter.go     commands and bytes of a client; calls.go finds, claims and ends among them
//	serverusage.go  what the server itself used; processtime_linux.go its processor time
//	distance.go  a proxy that adds a round trip's time
//	work.go      a worker: a goroutine of this process, or this binary again
//	crew.go      the bench's side of the workers; protocol.go what the two say
//	result.go    the numbers and their arithmetic
//
// What it measures is the public API with no-op handlers; only the yardstick and the look
// at leases use the store. It never touches a database that it did not make.
package bench
