// Package consumer is a worker: it finds due tasks, claims them, runs their handlers, extends
// their leases and stores their results. Any number of processes can embed a worker. They share
// only the database.
//
//	c, err := consumer.New(consumer.Config{Database: db})
//	err = consumer.Handle(c, Welcome, func(ctx context.Context, t *consumer.Task[WelcomeArgs]) (model.None, error) {
//		return model.None{}, mail(ctx, t.Args.User, t.TaskID)
//	})
//	err = c.Run(ctx) // until ctx ends, then stops gracefully
//
// A handler can rely on this: its context ends (context.Cause) when the worker stops
// ([ErrShutdown]), when the lease cannot be extended ([ErrLeaseLost]), when the task is
// cancelled ([ErrCancelled]) and at the execution's deadline ([ErrTimeout]). Healthy workers
// never run more executions of a task at once than it requires, which is one by default.
// After a takeover by another worker, a late result is refused.
//
// Inside, each loop is a file:
//
//	find     fetch.go    searches for due tasks: after a wake-up, at a known time, by polling;
//	                     internal/fetchplan decides where, how many and how early
//	         rest.go     waits while no task is due: timers, and polls with one query
//	         follow.go   claims the tasks of events, while internal/stream keeps a change
//	                     stream open
//	         preempt.go  decides about lapsed leases, which internal/lapse finds
//	claim    claim.go    claims batches with internal/claim and holds the claimed tasks
//	run      run.go      calls handlers in free slots; holdings.go counts them
//	keep     leases.go   handles leases that internal/lease cannot extend
//	save     step.go     a handler's steps
//	end      end.go      hands ends to internal/finish, which writes ends and steps and
//	                     refuses late ones, and handles the results
//	         completein.go  ends that handlers write in their own transactions
//	control  control.go  applies pauses and signals, which internal/control reads;
//	                     internal/presence writes heartbeats
//	health   internal/health  detects outages and orders the work after one
//	stop     shutdown.go
//
// Decisions are pure rules in internal/lifecycle; queries are in internal/store. A worker
// without a change stream polls every second. In a large fleet it polls less often, so that the
// whole fleet polls twenty times a second.
package consumer
