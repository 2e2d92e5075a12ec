package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

// Result is what one scenario, or one part of it ("paced/8"), measured. What a scenario
// does not measure is null in JSON.
type Result struct {
	Scenario    string `json:"scenario"`
	Engine      string `json:"engine"` // "embedded memory", "embedded file", "MongoDB 8.0.1"
	Tasks       int    `json:"tasks"`  // that ended; in send, that were stored
	Processes   int    `json:"processes"`
	Concurrency int    `json:"concurrency"`
	Partial     bool   `json:"partial"` // ended before its end

	TasksPerSecond *float64 `json:"tasks_per_second"`
	RawPerSecond   *float64 `json:"raw_per_second"` // the same writes without the product
	Ratio          *float64 `json:"ratio"`          // of the two

	RoundTripsPerTask     *float64 `json:"round_trips_per_task"`
	ClaimsAttemptedPerWon *float64 `json:"claims_attempted_per_won"`
	Latency               *Latency `json:"latency_ms"`
	// Commands are those that the measured clients sent, by name.
	Commands map[string]int64 `json:"commands"`

	// Finds, Claims and Ends are the commands that search, claim and finish.
	Finds  *Calls `json:"finds"`
	Claims *Calls `json:"claims"`
	Ends   *Calls `json:"ends"`
	// ServerCPU and ClientCPU are microseconds of processor time a task.
	ServerCPU *float64 `json:"server_cpu_us_per_task"`
	ClientCPU *float64 `json:"client_cpu_us_per_task"`
	// KeysExamined and DocsExamined are what the server's queries and updates read a task.
	KeysExamined *float64 `json:"keys_examined_per_task"`
	DocsExamined *float64 `json:"docs_examined_per_task"`

	BytesPerTask *float64 `json:"-"` // on the wire, both directions
	Notes        []string `json:"-"` // what the fields cannot say
}

// Latency is percentiles in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// MarshalJSON writes commands as an object also when there were none.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	if r.Commands == nil {
		r.Commands = map[string]int64{}
	}
	return json.Marshal(plain(r))
}

// measured sets the rate of so many tasks in that time, and the ratio when there is a
// yardstick.
func (r *Result) measured(tasks int, took time.Duration) {
	r.Tasks = tasks
	r.TasksPerSecond = perSecond(tasks, took)
	r.compare()
}

func (r *Result) yardstick(perSecond *float64) {
	r.RawPerSecond = perSecond
	r.compare()
}

func (r *Result) compare() {
	r.Ratio = quotient(r.TasksPerSecond, r.RawPerSecond)
}

// counted sets what was sent to the server for the tasks; measured comes first.
func (r *Result) counted(t totals) {
	r.Commands = maps.Clone(t.Commands)
	var trips int64
	for _, n := range t.Commands {
		trips += n
	}
	tasks := float64(r.Tasks)
	r.RoundTripsPerTask = quotient(ptr(float64(trips)), &tasks)
	r.ClientCPU = (&spent{tasks: r.Tasks, cpu: time.Duration(t.CPU)}).cpuEach()
	r.BytesPerTask = quotient(ptr(float64(t.Read+t.Written)), &tasks)
	r.Finds, r.Claims, r.Ends = t.Calls[store.Finding].summary(), t.Calls[store.Claiming].summary(), t.Calls[store.Ending].summary()
	r.ClaimsAttemptedPerWon = quotient(ptr(float64(t.Attempted)), ptr(float64(t.Won)))
}

func ptr[T any](v T) *T { return &v }

// quotient is nil where it says nothing.
func quotient(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	return ptr(round(*a / *b))
}

func perSecond(n int, took time.Duration) *float64 {
	if n == 0 || took <= 0 {
		return nil
	}
	return ptr(round(float64(n) / took.Seconds()))
}

// round keeps four digits of what is below one, and thousandths of what is above.
func round(v float64) float64 {
	if math.Abs(v) < 1 {
		return math.Round(v*1e4) / 1e4
	}
	return math.Round(v*1e3) / 1e3
}

// percentiles of the values, in their unit: the smallest that at least that share of them
// does not exceed. nil when there is none.
func percentiles(values []float64) *Latency {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	at := func(share float64) float64 {
		return round(sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)])
	}
	return &Latency{P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: at(1)}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Headings of the table of results; [Result.Row] has its cells.
var Headings = []string{"SCENARIO", "TASKS", "TASKS/S", "RAW/S", "RATIO", "TRIPS/TASK", "BYTES/TASK", "CLAIMS/WON", "P50 MS", "P95", "P99", "MAX"}

// Row is the result as a line of a table, "" where nothing was measured.
func (r Result) Row() []string {
	name := r.Scenario
	if r.Partial {
		name += " (partial)"
	}
	row := []string{
		name, fmt.Sprint(r.Tasks), shown(r.TasksPerSecond, 0), shown(r.RawPerSecond, 0), shown(r.Ratio, 2),
		shown(r.RoundTripsPerTask, 3), shown(r.BytesPerTask, 0), shown(r.ClaimsAttemptedPerWon, 2),
	}
	if l := r.Latency; l != nil {
		for _, ms := range []float64{l.P50, l.P95, l.P99, l.Max} {
			row = append(row, shown(&ms, 1))
		}
		return row
	}
	return append(row, "", "", "", "")
}

func shown(v *float64, digits int) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.*f", digits, *v)
}

// details are the numbers of a result that its row has no room for, a line each.
func (r *Result) details() (lines []string) {
	var parts []string
	for _, x := range []struct {
		name string
		c    *Calls
	}{{"finds", r.Finds}, {"claims", r.Claims}, {"ends", r.Ends}} {
		if x.c != nil {
			parts = append(parts, fmt.Sprintf("%s %d (mean %s ms, %s tasks)", x.name, x.c.Commands, shown(x.c.MeanMS, 1), shown(x.c.MeanSize, 0)))
		}
	}
	if len(parts) > 0 {
		lines = append(lines, "commands: "+strings.Join(parts, ", "))
	}
	parts = nil
	for _, x := range []struct {
		value *float64
		text  string
	}{{r.ServerCPU, "server"}, {r.ClientCPU, "workers"}} {
		if x.value != nil {
			parts = append(parts, fmt.Sprintf("%s %.0f µs", x.text, *x.value))
		}
	}
	if len(parts) > 0 {
		lines = append(lines, "processor time a task: "+strings.Join(parts, ", "))
	}
	if r.KeysExamined != nil {
		lines = append(lines, fmt.Sprintf("examined a task: %s index keys, %s documents", shown(r.KeysExamined, 2), shown(r.DocsExamined, 2)))
	}
	return lines
}
