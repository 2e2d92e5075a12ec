// Package integration holds the scenarios of the product across its packages; their names
// are the promises. Each runs on every engine that is at hand (engines_test.go): on the
// embedded server with the race detector, and on the others without it. Those whose size
// matters run on the embedded server once more, at full size (make scenarios), and those with much
// to compute only there. What takes longest only make long has: see inDepth, slowInLong and withoutRace.
//
// On the embedded server a scenario runs in virtual time (testing/synctest, see Engine.play): an hour passes
// as soon as nobody has anything to do, and a slow machine makes no lease lapse. Processes that are killed, HTTP
// and everything on the other engines need real time.
//
//	existing_test.go     a key that exists
//	finding_test.go      how work is found, and when
//	several_test.go      tasks that want several workers; the worker filter
//	errors_test.go       errors, retries, panics
//	control_test.go      cancel, pause, stop
//	outside_test.go      park, complete, fail, ping; checkpoints, progress, await
//	sharing_test.go      priorities, limits, tenants, middleware, transactions
//	chaos_*_test.go      outages, lapses, clocks, contention
//
// A scenario is written with the helpers of world_test.go. None sleeps: it waits for an
// event of a worker, or for what the database holds, with a deadline that only a broken
// product reaches.
package integration
