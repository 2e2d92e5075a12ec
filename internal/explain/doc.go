// Package explain describes in plain words why a task is in its state and what happens
// next. It is pure: it applies the rules of package lifecycle that the workers apply, so
// an explanation cannot disagree with them.
//
//	explain.go   the report; a waiting task and the workers that may claim it
//	states.go    executing, cancelled and ended tasks
//	callback.go  the callback of an ended task
//	limits.go    tasks held back by limits or by the conditions of workers
package explain
