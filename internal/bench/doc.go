// Package bench measures how fast the product is, beside what the database itself can do
// with the same writes on the same server: the command mscheduler bench.
//
//	raw.go       the yardstick: the writes of a task's life in the cheapest form known
//	floor.go     the yardstick of latency: insert, change event, guarded update
//	scenario.go  the list of scenarios; each is parts, which are data for
//	run.go       the driver: scratch database ─▶ raw ─▶ load ─▶ workers ─▶ measure
//	load.go      backlogs, a steady load and what it does for a while
//	drain.go     preloaded, fleet, delayed: a backlog of no-op tasks
//	waiting.go   paced: how late handlers start; idle: what workers cost that have nothing to do
//	steady.go    sent as fast as they finish, for minutes
//	limited.go   a type with max_running
//	takeover.go  a worker killed with executions
//	archive.go   finished tasks move to the history beside a steady load
//	periodic.go  rules of every second, and many rules that seldom fire
//	pull.go      workers that fetch over the REST API
//	send.go      producers only
//	compare.go   bench compare: the same work on other schedulers, by turns
//	otherprogram.go  runs one of those; others/ has their programs, which are no part of the build
//
//	meter.go     commands and bytes of a client; finds, claims and ends among them
//	serverusage.go  what the server itself used; processtime_linux.go its processor time
//	distance.go  a proxy that adds a round trip's time
//	work.go      a worker: a goroutine of this process, or this binary again
//	crew.go      the bench's side of the workers; protocol.go what the two say
//	result.go    the numbers and their arithmetic
//
// What it measures is the public API with no-op handlers; only the yardstick and the look
// at leases use the store. It never touches a database that it did not make.
package bench
