// Package builtin holds the task types that do real work without a line of Go: http
// calls a URL, exec runs a program.
//
//	register.go    Register: the types on a consumer, and what an operator allows
//	httpargs.go    what an http task may say, and what is wrong with it
//	http.go        the call, its result, which answers are errors
//	redirect.go    which redirects are followed, and with what
//	target.go      the calls of periodic rules: filled, signed, answered later
//	execargs.go    what an exec task may say
//	exec.go        the program, its output, its end
//
// The addresses that no task may reach are in internal/httpcall.
//
// Arguments that can never work are [consumer.Fatal] errors that name the field: a
// retry would fail in the same way. [CheckArgs] finds the same before a task is sent.
//
// Results leave out what differs between equal calls (dates, durations): tasks that
// end alike are then finished by one statement of the database.
package builtin
