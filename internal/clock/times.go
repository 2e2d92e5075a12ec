package clock

import (
	"time"
)

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Sooner is the earlier of two times, of which a zero one is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Millis cuts a time to what the database stores.
func Millis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// Format is how times appear in JSON: RFC 3339 with the milliseconds MongoDB keeps.
const Format = "2006-01-02T15:04:05.000Z07:00"
