package cli

import (
	"fmt"
	"strings"
	"time"
)

// stamp is an absolute time for people: UTC, to the second.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// when is a time for people, absolute and relative: "2026-11-21 16:07:10Z (3m ago)".
func when(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", stamp(t), relative(t, now))
}

// relative is how far a time is from now: "3m ago", "in 20s", "now".
func relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d.Abs() < time.Second:
		return "now"
	case d > 0:
		return "in " + rough(d)
	default:
		return rough(-d) + " ago"
	}
}

// rough is a duration in its two greatest units: "1h 5m", "12s", "3d 4h", "350ms".
func rough(d time.Duration) string {
	if d < 0 {
		return "-" + rough(-d)
	}
	if d < time.Second {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	if d < 10*time.Second && d%time.Second != 0 {
		return fmt.Sprintf("%.1fs", d.Seconds())
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

// parseTime reads a time as users write it: RFC 3339, a date with a time in UTC, or a
// duration from now: "in 5m" is "5m", "5 minutes ago" is "-5m".
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t, nil
		}
	}
	if d, err := parseDuration(flag, s); err == nil {
		return now.Add(d), nil
	}
	return time.Time{}, usage("--%s is %q; want a time such as 2026-01-31T09:00:00Z, or a duration from now such as 5m or -2h", flag, s)
}

// parseDuration is time.ParseDuration with days.
func parseDuration(flag, s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		var days float64
		if _, err := fmt.Sscanf(n, "%g", &days); err == nil && fmt.Sprintf("%g", days) == n {
			return time.Duration(days * 24 * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, usage("--%s is %q; want a duration such as 500ms, 30s, 5m, 2h or 7d", flag, s)
	}
	return d, nil
}
