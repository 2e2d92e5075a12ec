// Package consumer is a worker: it finds due tasks, claims them, runs their handlers,
// keeps their leases and writes how they ended. Any number of processes embed one; the
// database is the only thing they share.
//
//	c, err := consumer.New(consumer.Config{Database: db})
//	err = consumer.Handle(c, Welcome, func(ctx context.Context, t *consumer.Task[WelcomeArgs]) (model.None, error) {
//		return model.None{}, mail(ctx, t.Args.User, t.ID)
//	})
//	err = c.Run(ctx) // until ctx ends, then stops gracefully
//
// What a handler may rely on: its context ends (context.Cause) when the worker stops
// ([ErrShutdown]), when its lease cannot be kept ([ErrLeaseLost]), when the task is
// cancelled ([ErrCancelled]) and at the execution's deadline ([ErrTimeout]); a handler
// is never run twice at once by workers that are well; a result that comes after
// somebody else took the task over is refused.
//
// Inside, each loop is a file:
//
//	find     fetch.go    looks for due tasks: woken, at a known time, by poll
//	                     internal/fetchplan says where, for how many and how early
//	         rest.go     while there are none: timers, and polls of one query
//	         follow.go   claims what events name, while internal/stream keeps a change
//	                     stream open
//	         preempt.go  decides about lapsed leases, which internal/lapse looks for
//	claim    claim.go    has internal/claim claim a batch, and holds what was won
//	run      run.go      calls handlers in free slots; holdings.go counts them
//	keep     leases.go   what follows when internal/lease cannot keep a lease
//	save     step.go     a handler's steps
//	end      end.go      hands ends over, and hears what became of them; internal/finish
//	                     writes ends and steps, and refuses those that come too late
//	         completein.go  ends that handlers write in transactions of their own
//	control  control.go  what follows from the pauses and signals that internal/control
//	                     reads; internal/presence writes heartbeats
//	health   internal/health  outages, and what goes first after one
//	stop     shutdown.go
//
// Everything that decides is a pure rule of package model; every query is in
// internal/store. A worker without a change stream polls every second, or, in a large
// fleet, so often that the whole fleet polls twenty times a second.
package consumer
