// Package sim simulates a deployment in virtual time: a database, and processes that are
// workers, engines and senders at once. They are the product itself with its MongoDB driver. Only
// three things are not those of a real deployment:
//
//	time      testing/synctest: an hour passes as soon as nobody has anything to do
//	network   pipes through internal/proxy: commands and answers are slow, late or lost, events lost or doubled
//	database  the embedded server: its clock jumps, it breaks connections, it restarts, its disk is full
//
// A seed decides what happens when, and which plays a world has beside tasks: a rule, flows, plans, a stream, people,
// workers that pull, executions that are completed from outside, callbacks, transactions, muddled events. At the end the
// faults stop, and everything must come to its end. The checks of the promises of docs/architecture.md say what is wrong:
//
//	tasks     none is lost; the result is that of one execution, which nobody had taken over; the error budget is exact
//	          (checkTask); none runs on two workers, or beyond its limit (run); what was refused is no result, what was
//	          accepted is (checkOutside)
//	people    an end is final in its life (saw, sawFlow); nothing begins that is Cancelled, held or paused (allows); a
//	          change that was answered is there (checkTask, checkEditions)
//	rules     each tick has one record and one task (promises.Stored.CheckTicks)
//	flows     no node begins before its parents ended (CheckFlows); a stream has what was appended once, in order, one
//	          node at a time (checkStream)
//	plans     each step succeeds once, after the one before it (CheckPlans)
//	callbacks each end arrives at least once, signed, with one id and one body (receives, checkCallbacks)
//	senders   a transaction is there with its task, or neither is (checkOrders)
//	load      no process spins (fate)
//
// [TestTheChecksFindWhatIsWrong] breaks one promise after the other and shows that its check bites. The history of a seed
// that failed is printed for people.
//
//	MSCHEDULER_SIM_SEED=17 go test ./integration/sim -v    one seed, with its history
//	make sim                                               10,000 seeds
//
// A seed has the same faults at the same times again. The Go scheduler still chooses the order in which goroutines
// act at one moment, and the product draws its own pauses. So a rare failure may need its seed more than once:
// MSCHEDULER_SIM_TIMES=20 plays it so often.
package sim
