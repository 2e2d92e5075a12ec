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

	Late    []float64 `json:"late,omitempty"` // milliseconds from due to the handler's start
	Sent    []float64 `json:"sent,omitempty"` // milliseconds from before Send to the handler's start
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

func (t *totals) add(o totals) {
	t.Finished += o.Finished
	t.LastFinish = max(t.LastFinish, o.LastFinish)
	t.Attempted += o.Attempted
	t.Won += o.Won
	t.Read += o.Read
	t.Written += o.Written
	t.CPU += o.CPU
	if t.Commands == nil {
		t.Commands = map[string]int64{}
	}
	for name, n := range o.Commands {
		t.Commands[name] += n
	}
	if t.Calls == nil {
		t.Calls = map[store.Purpose]calls{}
	}
	for p, c := range o.Calls {
		t.Calls[p] = t.Calls[p].plus(c, 1)
	}
}

// since is what was counted after an earlier look.
func (t totals) since(o totals) totals {
	t.Finished -= o.Finished
	t.Attempted -= o.Attempted
	t.Won -= o.Won
	t.Read -= o.Read
	t.Written -= o.Written
	t.CPU -= o.CPU
	t.Commands = maps.Clone(t.Commands)
	for name, n := range o.Commands {
		if t.Commands[name] -= n; t.Commands[name] == 0 {
			delete(t.Commands, name)
		}
	}
	t.Calls = maps.Clone(t.Calls)
	for p, c := range o.Calls {
		t.Calls[p] = t.Calls[p].plus(c, -1)
	}
	return t
}
