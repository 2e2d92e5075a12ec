package form

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Duration is a span of time, written as 500ms, 30s, 5m, 2h or 7d.
type Duration time.Duration

var errDuration = errors.New("want a duration such as 500ms, 30s, 5m, 2h or 7d")

// ParseDuration is [time.ParseDuration] with days.
func ParseDuration(text string) (time.Duration, error) {
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		days, err := strconv.ParseFloat(number, 64)
		return inUnits(days, 24*time.Hour, err)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errDuration
	}
	return d, nil
}

// inUnits is so many of a unit; err is that of reading the number.
func inUnits(n float64, unit time.Duration, err error) (time.Duration, error) {
	if err != nil || math.IsNaN(n) || math.Abs(n)*float64(unit) >= math.MaxInt64 {
		return 0, errDuration
	}
	return time.Duration(n * float64(unit)), nil
}

// String writes the duration without the zeros behind it.
func (d Duration) String() string {
	const day = 24 * time.Hour
	if d != 0 && time.Duration(d)%day == 0 {
		return strconv.FormatInt(int64(time.Duration(d)/day), 10) + "d"
	}
	s := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// MarshalText writes the duration as [Duration.String] does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Timeout is a duration, or none.
type Timeout Duration

// MarshalText writes the duration, or none for [model.NoTimeout].
func (t Timeout) MarshalText() ([]byte, error) {
	if t == Timeout(model.NoTimeout) {
		return []byte("none"), nil
	}
	return Duration(t).MarshalText()
}

// Time is a time as people write it: RFC 3339, a date with or without a time, or a duration
// from now.
type Time string

func timeOf(t time.Time) Time { return Time(t.UTC().Format(time.RFC3339Nano)) }

// ParseTime reads a time. One without an offset is in the zone. Without now (the zero time) a
// duration from now is refused.
func ParseTime(text string, zone *time.Location, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t.UTC(), nil
		}
	}
	if now.IsZero() {
		return time.Time{}, errors.New("want a time such as 2026-01-31T09:00:00Z, or a date and time without an offset such as 2026-01-31 09:00")
	}
	if d, err := ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	return time.Time{}, errors.New("want a time such as 2026-01-31T09:00:00Z, or a duration from now such as 5m or -2h")
}

// ParsePast is [ParseTime] of a bound on what has happened, with errors that begin with "is". It refuses a
// duration that lies ahead, which is a minus sign forgotten: selects is what the bound would select then.
func ParsePast(text string, zone *time.Location, now time.Time, selects string) (time.Time, error) {
	at, err := ParseTime(text, zone, now)
	if err != nil {
		return at, fmt.Errorf("is %q; %w", text, err)
	}
	if d, err := ParseDuration(text); err == nil && d > 0 {
		return at, fmt.Errorf("is %s from now, which selects %s; did you mean -%[1]s?", Duration(d), selects)
	}
	return at, nil
}

// at is the time that a field says, or the zero time where it says none.
func (t *Time) at(field string, zone *time.Location, now time.Time) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	at, err := ParseTime(string(*t), zone, now)
	if err != nil {
		return at, input.Invalid(field, "is %q; %v", string(*t), err)
	}
	return at, nil
}

// Value is any JSON value, as it was written. Empty = none. What YAML has and JSON has not is
// refused; a date is text, as it looks.
type Value []byte

func (v *Value) read(n *node) (err error) {
	if *v = n.raw; n.raw == nil {
		*v, err = n.json()
	}
	return err
}

// MarshalJSON writes the value as it is.
func (v Value) MarshalJSON() ([]byte, error) { return v, nil }

// Body is the body of a request: text, or what is written as YAML and sent as JSON.
type Body string

func (b *Body) read(n *node) error {
	if n.kind == text || n.plain {
		*b = Body(n.text)
		return nil
	}
	data, err := n.json()
	*b = Body(data)
	return err
}
