// Package builtin holds the task types that need no Go code: http calls a URL, exec runs a program,
// and mscheduler.http makes the calls of periodic rules.
//
//	register.go    Register: the types on a consumer, and what an operator allows
//	httpargs.go    the arguments of an http task, and what is wrong with them
//	http.go        the handler of http tasks
//	target.go      the calls of periodic rules: filled, signed, recorded, completed later
//	execargs.go    the arguments of an exec task
//	exec.go        the program, its output, its end
//
// Package internal/httpcall makes the calls. Arguments that can never work are [consumer.Fatal]
// errors that name the field. [CheckArgs] finds the same before a task is sent.
package builtin
