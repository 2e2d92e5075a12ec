// Package bulk changes many tasks: those that a filter selects. The command line does so while somebody
// waits, and jobs do so in the background.
//
//	Job ──▶ a task of type mscheduler.bulk ──▶ any worker that runs the built-in types
//	                                             pages by id ──▶ 16 tasks at a time ──▶ checkpoint
//
// A job is a task like any other. So it survives the process that runs it: its lease lapses, another
// process takes it over, and goes on behind the last checkpoint. A stop is a cancel of the task.
//
//	action.go   what can be done to tasks, and from which statuses
//	filter.go   which tasks
//	walk.go     all tasks of a filter, page by page
//	job.go      what a job is to do, as a written form
//	start.go    starts, reads, lists and stops jobs
//	run.go      the handler
package bulk
