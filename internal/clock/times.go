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

// Millis cuts a time to what the database stores.
func Millis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// Format is how times appear in JSON: RFC 3339 with the milliseconds MongoDB keeps.
const Format = "2006-01-02T15:04:05.000Z07:00"
