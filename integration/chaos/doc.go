// Package chaos is the product as real processes on a real server, while everything goes wrong:
//
//	CHAOS_TIME=1h make chaos        a minute by default, on each engine that is at hand
//	CHAOS_SEED=17 make chaos        the faults of an earlier run, in the same order
//
//	main_test.go      a process: a worker, an engine of rules, flows and plans, a sender, a server
//	network_test.go   the way of a process to the database, with its faults
//	process_test.go   a process as the parent sees it: started, killed, frozen
//	nemesis_test.go   the faults, one after the other and at once
//	target_test.go    the HTTP target of the effects: idempotency keys, fencing tokens, who runs what at once
//	world_test.go     a deployment: it starts, is troubled, heals and is checked
//	chaos_test.go     the test, and the table at its end
//	check_test.go, means_test.go  the checks find what is planted; the faults are felt, and pass
//
// It is a Go test, so that what it needs stays out of the binary: the processes are this test binary,
// started again. What must hold in the end the simulation checks, too (internal/promises).
//
// libfaketime cannot move the clock of a Go program, which asks the kernel without the C library. Instead,
// each process gives the product a clock of its own (Config.Clock), and its parent sets that clock.
//
// A deployment of others is named by a URI. Its primary is asked to step down where the user may. With
// process ids the nemesis also freezes its servers, and kills them if it has a command that starts one again:
//
//	MSCHEDULER_MONGODB_URI=mongodb://... MSCHEDULER_CHAOS_PIDS=11,12,13 \
//	MSCHEDULER_CHAOS_RESTART='systemctl restart mongod@$N; systemctl show -P MainPID mongod@$N' make chaos
//
// N is the place in the list, from 1. The last line of the command's output is the new id.
package chaos
