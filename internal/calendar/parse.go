package calendar

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Gap says what becomes of a wall-clock time that does not exist, because clocks were set
// forward.
type Gap string

// The policies for gaps. The default is run_after; but skip where the hour is *, because
// such a rule means "every so often": the hour that does not exist has no run to make up
// for, and the next comes by itself.
const (
	GapRunAfter Gap = "run_after" // fires once, when the gap is over
	GapSkip     Gap = "skip"      // does not fire
)

// Fold says what becomes of a wall-clock time that comes twice, because clocks were set
// back.
type Fold string

// The policies for folds. The default is first; but both where the hour is *, because such
// a rule means "every so often", not "at that time of the day".
const (
	FoldFirst Fold = "first"
	FoldBoth  Fold = "both"
)

// Spec is what a rule says about its times.
type Spec struct {
	Cron     string    // 6 fields; 5 get second 0; @hourly and the like; @every DURATION
	Timezone string    // "" = UTC
	Gap      Gap       // "" = the default
	Fold     Fold      // "" = the default
	Start    time.Time // of the rule: @every counts from it, in whole seconds; zero = 1970
}

// Schedule is a checked Spec. It is immutable.
type Schedule struct {
	normal string
	spec   *cron.SpecSchedule // nil for @every
	every  time.Duration
	start  time.Time
	zone   *time.Location
	gap    Gap
	fold   Fold
}

// FieldError names the part of a [Spec] that is wrong.
type FieldError struct {
	Field string // cron, timezone, dst.gap, dst.fold
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// Parse checks a Spec. Every error in it is a *[FieldError], joined with the others. A
// rule that can never fire, such as the 30th of February, is refused.
func Parse(s Spec) (*Schedule, error) {
	c := &Schedule{gap: s.Gap, fold: s.Fold, start: s.Start.Truncate(time.Second)}
	if s.Start.IsZero() {
		c.start = time.Unix(0, 0)
	}
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Err: fmt.Errorf(format, args...)})
	}
	var err error
	if c.zone, err = Zone(s.Timezone); err != nil {
		bad("timezone", "%q is not a zone of the time zone database, such as Europe/Berlin", s.Timezone)
	}
	switch s.Gap {
	case "", GapRunAfter, GapSkip:
	default:
		bad("dst.gap", "is %q; want run_after or skip", s.Gap)
	}
	if err := c.parse(s.Cron); err != nil {
		bad("cron", "%q: %w", s.Cron, err)
	}
	switch s.Fold {
	case "", FoldFirst, FoldBoth:
	default:
		bad("dst.fold", "is %q; want first or both", s.Fold)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c.defaults()
	return c, nil
}

// descriptors are cron's names for frequent rules.
var descriptors = map[string]string{
	"@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *", "@monthly": "0 0 0 1 * *",
	"@weekly": "0 0 0 * * 0", "@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@hourly": "0 0 * * * *",
}

const everyPrefix = "@every "

func (c *Schedule) parse(expr string) error {
	expr = strings.ToLower(strings.Join(strings.Fields(expr), " "))
	if d, ok := descriptors[expr]; ok {
		expr = d
	}
	switch {
	case expr == "":
		return errors.New("is empty")
	case len(expr) > 1000:
		return errors.New("is longer than 1000 bytes")
	case strings.HasPrefix(expr, everyPrefix):
		return c.parseEvery(expr)
	case strings.HasPrefix(expr, "@"):
		return errors.New("is not a known descriptor: want @yearly, @monthly, @weekly, @daily, @hourly or @every DURATION")
	case strings.Contains(expr, "="):
		return errors.New("must not name a zone; use the field timezone")
	}
	fields := strings.Fields(expr)
	if len(fields) == 5 {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) != 6 {
		return fmt.Errorf("has %d fields; want 6 (second minute hour day month weekday), or 5 without the second", len(fields))
	}
	spec, err := masks(fields)
	if err != nil {
		return err
	}
	c.normal, c.spec = strings.Join(fields, " "), spec
	if c.nextWall(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return errors.New("can never fire: none of its months has such a day")
	}
	return nil
}

// durationForm is that of a duration, also of one that is longer than a time.Duration can be.
var durationForm = regexp.MustCompile(`^@every (\d+(\.\d*)?(h|m|s|ms|us|µs|ns))+$`)

func (c *Schedule) parseEvery(expr string) error {
	d, err := time.ParseDuration(strings.TrimPrefix(expr, everyPrefix))
	switch {
	case err != nil && durationForm.MatchString(expr):
		return errors.New("is too long; at most ten years are allowed")
	case err != nil:
		return errors.New("has no valid duration after @every; want for example 90s or 1h30m")
	case d < time.Second || d%time.Second != 0:
		return fmt.Errorf("is %v; want whole seconds, at least 1s, after @every", d)
	case d > 10*366*24*time.Hour:
		return fmt.Errorf("is %v; at most ten years are allowed", d)
	}
	c.every, c.normal = d, everyPrefix+d.String()
	return nil
}

// String is the rule as it is stored: six fields, or @every with its duration.
func (c *Schedule) String() string { return c.normal }

// Zone is the rule's time zone.
func (c *Schedule) Zone() *time.Location { return c.zone }

const everyHour = 1<<24 - 1

func (c *Schedule) defaults() {
	gap, fold := GapSkip, FoldBoth
	if c.spec != nil && c.spec.Hour&everyHour != everyHour {
		gap, fold = GapRunAfter, FoldFirst
	}
	if c.gap == "" {
		c.gap = gap
	}
	if c.fold == "" {
		c.fold = fold
	}
}
