package demo

import (
	"fmt"
	"strings"
)

// Summary is what came out. Its JSON is what `mscheduler demo -o json` prints.
type Summary struct {
	Tasks       int         `json:"tasks"`
	Succeeded   int         `json:"succeeded"` // Success in the database, by exactly one execution
	Lost        int         `json:"lost"`      // not so, or without an effect at the target
	Takeovers   int         `json:"takeovers"` // leases that lapsed, of which somebody else took the task
	Fenced      int         `json:"fenced"`    // ends that came too late and were refused
	WallSeconds float64     `json:"wall_seconds"`
	DueToStart  Percentiles `json:"due_to_start_ms"`
	Flow        flowResult  `json:"flow"` // the flow at the end

	killed, frozen act
	effects        int // at the target, in all
	repeated       int // tasks with more than one
	late           int // calls that the target itself could have refused by their fencing token
	lateSuccesses  int
	workers        []workerLine
	problems       []string
	more           int // problems that are only counted
}

// Percentiles in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

type workerLine struct {
	id                      string
	finished, fenced, taken int
}

const maxProblems = 10

func (s *Summary) problem(format string, args ...any) {
	if len(s.problems) >= maxProblems {
		s.more++
		return
	}
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// OK reports whether nothing was lost and the demo showed takeovers and refused results.
func (s *Summary) OK() bool {
	return s.Lost == 0 && s.Succeeded == s.Tasks && s.Takeovers > 0 && s.Fenced > 0 && len(s.problems) == 0
}

// Text is the summary for a person.
func (s *Summary) Text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-15s %s\n", name, fmt.Sprintf(format, args...))
	}
	if s.OK() {
		b.WriteString("\nNothing was lost.\n\n")
	} else {
		b.WriteString("\nThe demo FAILED.\n\n")
	}
	line("tasks", "%s sent, %s succeeded by exactly one execution each, %s lost", thousands(s.Tasks), thousands(s.Succeeded), thousands(s.Lost))
	line("effects", "%s calls reached the target; %s tasks called it more than once; with fencing tokens it could have refused %s late calls", thousands(s.effects), thousands(s.repeated), thousands(s.late))
	line("takeovers", "%d leases lapsed; other workers took over the tasks of %s %.1f s after the kill, those of %s %.1f s after the freeze",
		s.Takeovers, s.killed.worker, s.killed.took.Seconds(), s.frozen.worker, s.frozen.took.Seconds())
	line("fenced", "%d late results from %s refused, %d of them successes", s.Fenced, s.frozen.worker, s.lateSuccesses)
	line("due to started", "p50 %s, p95 %s, p99 %s", ms(s.DueToStart.P50), ms(s.DueToStart.P95), ms(s.DueToStart.P99))
	line("flow", "%s: %d of %d nodes SUCCESS; %s took over the node %s %.1f s after the kill of %s",
		s.Flow.Status, s.Flow.Success, s.Flow.Nodes, s.Flow.Took, killedNode, s.Flow.Takeover/1000, s.Flow.Killed)
	line("wall time", "%.1f s", s.WallSeconds)
	for _, w := range s.workers {
		line(w.id, "%s executions finished, %d takeovers, %d late results refused", thousands(w.finished), w.taken, w.fenced)
	}
	for _, p := range s.problems {
		line("PROBLEM", "%s", p)
	}
	if s.more > 0 {
		line("PROBLEM", "and %d more", s.more)
	}
	return b.String()
}

func ms(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.2f s", v/1000)
	}
	return fmt.Sprintf("%.1f ms", v)
}

// thousands writes a count with separators.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
