package cli

import (
	"fmt"
	"strings"
	"time"
)

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
