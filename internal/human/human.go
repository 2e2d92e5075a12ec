// Package human writes times, durations and counts as people read them.
package human

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Stamp is an absolute time for people: UTC, to the second.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// When is a time for people, absolute and relative: "2026-11-21 16:07:10Z (3m ago)".
func When(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", Stamp(t), Relative(t, now))
}

// Relative is how far a time is from now: "3m ago", "in 20s", "just now".
func Relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d <= 0 && d > -time.Second:
		return "just now"
	case d > 0 && d < time.Second:
		return "now"
	case d > 0:
		return "in " + Rough(d)
	default:
		return Rough(-d) + " ago"
	}
}

// Rough is a duration in its two greatest units: "1h 5m", "12s", "3d 4h", "350ms".
func Rough(d time.Duration) string {
	if d < 0 {
		return "-" + Rough(-d)
	}
	if d < time.Second {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	if d < 10*time.Second && d%time.Second != 0 {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	switch { // to what is shown: 4m 59.9s is five minutes
	case d >= 24*time.Hour:
		d = d.Round(time.Hour)
	case d >= time.Hour:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Second)
	}
	units := []struct {
		size time.Duration
		name string
	}{{365 * 24 * time.Hour, "y"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	var parts []string
	for _, u := range units {
		n := d / u.size
		d -= n * u.size
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", n, u.name))
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	return strings.Join(parts, " ")
}

// OneLine is text on one line, cut to n characters.
func OneLine(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// Plural is a count with its noun.
func Plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// List is words as a part of a sentence: "a", "a and b", "a, b and c".
func List(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// TaskID is the id of a task as people write it: http/order-17 for -/http/order-17, which has no
// tenant. A key with a slash keeps the id in full, since type/key would be taken for another.
func TaskID(id string) string { return withoutTenant(id, 1) }

// TaskArg is the id as an argument of a command, for a shell. One that could be a flag comes after --.
func TaskArg(id string) string { return argument(TaskID(id)) }

// FlowID is the id of a flow as people write it: order-17 for -/order-17, which has no tenant. A key
// with a slash keeps the id in full.
func FlowID(id string) string { return withoutTenant(id, 0) }

// FlowArg is the id as an argument of a command, as [TaskArg].
func FlowArg(id string) string { return argument(FlowID(id)) }

// WorkFor is the command that starts a worker for a built-in type; "" for any other type.
func WorkFor(typ string) string {
	switch typ {
	case "http", "mscheduler.http":
		return "mscheduler work"
	case "exec": // off unless a person allows it
		return "mscheduler work --allow-exec"
	default:
		return ""
	}
}

// PlanID is the id of a plan as people write it: nightly for -/nightly, which has no tenant.
func PlanID(id string) string { return withoutTenant(id, 0) }

// PlanArg is the id as an argument of a command, as [TaskArg].
func PlanArg(id string) string { return argument(PlanID(id)) }

// withoutTenant is an id without the mark of no tenant, where that leaves so many slashes.
func withoutTenant(id string, slashes int) string {
	if short, none := strings.CutPrefix(id, "-/"); none && strings.Count(short, "/") == slashes {
		return short
	}
	return id
}

func argument(id string) string {
	quoted := "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
	if strings.HasPrefix(id, "-") && !strings.HasPrefix(id, "-/") {
		return "-- " + quoted
	}
	return quoted
}
