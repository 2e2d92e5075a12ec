// Package fleet starts, freezes and kills processes, for the commands and tests that show
// what happens then: the demo, the bench and the chaos scenarios.
//
//	process.go  one process, or a goroutine in its place: its pipes, its signals, its end
//	fleet.go    several processes, and a lock whose changes can be waited for
//
// A process is asked to stop by the end of its standard input. It reports on its standard
// output, a line each. What the lines mean is the caller's.
package fleet
