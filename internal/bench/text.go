package bench

import (
	"fmt"
	"strings"
)

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
