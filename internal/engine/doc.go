// Package engine finds and starts the MongoDB-compatible deployments that tests run on.
//
//	URI         the deployment that MSCHEDULER_MONGODB_URI names; it is there already
//	Mongod      mongod on PATH, as a replica set of one member in a temporary directory
//	Container   in package internal/container, which alone knows testcontainers
//	Secantusd   secantusd-rs, an independent engine; for this project's own tests
//	Embedded    our own server in this process: always at hand
//
// An [Engine] is a way to start one; a [Deployment] is one that runs; [Shared] is one
// that all tests of a process share, a fresh database each. What is not at hand is told
// by a [*MissingError], which whoever looks for engines prints: none is skipped silently.
//
// A process that is started here never outlives the one that started it (guard.go).
package engine
