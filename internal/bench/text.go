package bench

import "fmt"

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
