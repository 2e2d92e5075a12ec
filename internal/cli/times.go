package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/form"
)

// parseTime reads the time of a flag; see [form.ParseTime].
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	at, err := form.ParseTime(s, time.UTC, now)
	if err != nil {
		return at, usage("--%s is %q; %w", flag, s, err)
	}
	return at, nil
}

// parsePastIfAny reads the bound of a flag that may be empty (the zero time); see [form.ParsePast].
func parsePastIfAny(flag, s string, now time.Time, selects string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	at, err := form.ParsePast(s, time.UTC, now, selects)
	if err != nil {
		return at, usage("--%s %w", flag, err)
	}
	return at, nil
}

// span is a duration for people.
func span(d time.Duration) string { return form.Duration(d).String() }

// spanFlag is a duration as a flag, with days.
type spanFlag time.Duration

// spanVar registers a flag that is a duration.
func spanVar(fs *pflag.FlagSet, p *time.Duration, name string, value time.Duration, help string) {
	*p = value
	fs.Var((*spanFlag)(p), name, help)
}

// Set reads the duration.
func (s *spanFlag) Set(text string) error {
	d, err := form.ParseDuration(text)
	*s = spanFlag(d)
	return err
}

// String is the duration, nothing for none.
func (s *spanFlag) String() string {
	if *s == 0 {
		return ""
	}
	return span(time.Duration(*s))
}

// Type is what the help calls the value.
func (*spanFlag) Type() string { return "duration" }
