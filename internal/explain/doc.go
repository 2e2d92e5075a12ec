// Package explain says in plain words why a task is where it is and what would happen
// next. It is pure: it asks the same rules of package model that the workers ask, so an
// explanation can not disagree with what they do.
//
//	explain.go   the report; a task that waits, and who could claim it
//	states.go    tasks that somebody holds, that are cancelled, that have ended
//	callback.go  the callback of a task that has ended
//	limits.go    tasks that wait for others: what limits and conditions keep back
package explain
