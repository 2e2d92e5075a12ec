package bench

import (
	"maps"

	"github.com/mscheduler/mscheduler/internal/store"
)

// What the bench and a worker say to each other, a line each: the bench writes a spec,
// then "go", and closes the pipe to end the work; the worker writes reports as JSON.

// spec is what a worker is told first. The connection string goes this way and not by
// arguments or the environment, where others could read it.
type spec struct {
	URI         string `json:"uri"`
	Database    string `json:"database"`
	WorkerID    string `json:"worker_id"`
	Concurrency int    `json:"concurrency"`
	// Own says that it has a process of its own, whose processor time it reports.
	Own bool `json:"own,omitempty"`
	// Profile is the file that its CPU profile goes to; only with Own.
	Profile string `json:"profile,omitempty"`
	// Hold makes handlers wait until the worker is killed or stopped.
	Hold bool `json:"hold,omitempty"`
	// Latencies makes it report how late each handler started.
	Latencies bool `json:"latencies,omitempty"`
	// Starts makes it report when the handler of each task started.
	Starts bool `json:"starts,omitempty"`
	// Limited makes it serve the type with max_running, too, and report the starts of that.
	Limited bool `json:"limited,omitempty"`
	// Flows makes the process an engine of flows, too.
	Flows bool `json:"flows,omitempty"`
	// Plans makes the process an engine of plans, too.
	Plans bool `json:"plans,omitempty"`
	// Append makes it append nodes to streams, and run no tasks; nil = it runs tasks.
	Append *appendOrder `json:"append,omitempty"`
	// Floor makes it claim raw tasks by the driver alone, and run no tasks, see [floor].
	Floor bool `json:"floor,omitempty"`
	// Steps makes it report the times between handlers.
	Steps bool `json:"steps,omitempty"`
	// Results makes each handler return a result of its own.
	Results bool `json:"results,omitempty"`
	// Fetches makes it report the time of each fetch.
	Fetches bool `json:"fetches,omitempty"`
}

// report is a line of a worker. Counters are totals since "go"; lists are what is new.
type report struct {
	Ready    bool   `json:"ready,omitempty"`
	Failed   string `json:"failed,omitempty"`
	Watching bool   `json:"watching,omitempty"`
	Running  int    `json:"running,omitempty"`
	totals

	Late    []float64 `json:"late,omitempty"`  // milliseconds from due to the handler's start
	Sent    []float64 `json:"sent,omitempty"`  // milliseconds from before Send to the handler's start
	Steps   []float64 `json:"steps,omitempty"` // milliseconds from the return of a handler to the start of the next
	Took    []float64 `json:"took,omitempty"`  // milliseconds that handlers of the type with max_running took
	Starts  []start   `json:"starts,omitempty"`
	Fetches []fetch   `json:"fetches,omitempty"`
}

// start is the start of a task's handler.
type start struct {
	TaskID string `json:"task_id"`
	At     int64  `json:"at"` // Unix nanoseconds by the database's clock
}

// totals are counters of one worker, or the sum of several.
type totals struct {
	Finished   int64 `json:"finished"`
	LastFinish int64 `json:"last_finish"` // Unix nanoseconds by the machine's clock
	Attempted  int64 `json:"attempted"`   // claims
	Won        int64 `json:"won"`
	Read       int64 `json:"read"` // bytes
	Written    int64 `json:"written"`
	CPU        int64 `json:"cpu,omitempty"` // nanoseconds of processor time of a process of its own

	Commands map[string]int64        `json:"commands"`
	Calls    map[store.Purpose]calls `json:"calls,omitempty"`
}

// plus is the sum with sign 1, and the difference with sign -1. LastFinish is the later one.
func (t totals) plus(o totals, sign int64) totals {
	sum := totals{
		Finished: t.Finished + sign*o.Finished, LastFinish: max(t.LastFinish, o.LastFinish),
		Attempted: t.Attempted + sign*o.Attempted, Won: t.Won + sign*o.Won,
		Read: t.Read + sign*o.Read, Written: t.Written + sign*o.Written, CPU: t.CPU + sign*o.CPU,
		Commands: map[string]int64{}, Calls: map[store.Purpose]calls{},
	}
	maps.Copy(sum.Commands, t.Commands)
	maps.Copy(sum.Calls, t.Calls)
	for name, n := range o.Commands {
		if sum.Commands[name] += sign * n; sum.Commands[name] == 0 {
			delete(sum.Commands, name)
		}
	}
	for p, c := range o.Calls {
		sum.Calls[p] = sum.Calls[p].plus(c, sign)
	}
	return sum
}
