// Package schedule holds the documents of periodic rules and of their runs.
//
// A [Rule] defines when a task is sent, and what happens to ticks that are missed, that overlap
// or that exceed a limit. A [Run] records the outcome of one tick. Package periodic stores
// rules and runs them.
package schedule
