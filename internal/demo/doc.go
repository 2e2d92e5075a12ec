// Package demo is the command `mscheduler demo`: the main job of mscheduler on real
// processes, with two of them broken on purpose.
//
//	target ◀── http ── worker-1   SIGKILL while its calls are in flight
//	   ▲ ▲──── http ── worker-2   SIGSTOP past its lease, then SIGCONT
//	   └────── http ── worker-3   takes over
//	                      │
//	                database ◀── send --file tasks.jsonl
//
// It ends with a flow of four nodes, of which the worker of one is killed.
//
// The target counts every effect and can keep the calls of one worker open, so that a
// worker is certain to hold tasks when it is killed or frozen; nothing waits for luck.
// What is reported comes from facts: events that the workers write, what the target
// saw, and the documents of the tasks.
//
//	demo.go     the order of things
//	target.go   the HTTP server that the tasks call
//	tasks.go    the file of tasks
//	workers.go  the worker processes and what they report
//	acts.go     the kill and the freeze
//	flow.go     the flow at the end
//	view.go     what a person sees meanwhile
//	verify.go   what is true afterwards;  summary.go  how it is told
package demo
