// Package httptarget is the HTTP call that a periodic rule makes at each tick, as the
// arguments of the task type mscheduler.http hold it: no I/O.
//
//	target.go    the target, what is wrong with it, its JSON
//	template.go  texts with {{placeholders}}, how each place of a request escapes them
//	fill.go      the request of one run
//
// The handler of the type is in internal/builtin; package periodic checks targets and makes
// tasks of them.
package httptarget
