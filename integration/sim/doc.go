// Package sim simulates a deployment in virtual time: a database, and processes that are
// workers, engines and senders at once. They are the product itself with its MongoDB driver. Only
// three things are not those of a real deployment:
//
//	time      testing/synctest: an hour passes as soon as nobody has anything to do
//	network   pipes through internal/proxy: commands and answers are slow, late or lost
//	database  the embedded server: its clock jumps, it breaks connections, it restarts
//
// A seed decides what happens when. At the end the faults stop, and everything must come to its
// end: checks of the promises of docs/architecture.md say what is wrong. The history of a seed that failed is
// printed for people.
//
//	MSCHEDULER_SIM_SEED=17 go test ./integration/sim -v    one seed, with its history
//	make sim                                               10,000 seeds
//
// A seed has the same faults at the same times again. The Go scheduler still chooses the order in which goroutines
// act at one moment, and the product draws its own pauses. So a rare failure may need its seed more than once:
// MSCHEDULER_SIM_TIMES=20 plays it so often.
package sim
