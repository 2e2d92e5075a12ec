package calendar

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// cronField is one of the six fields of a rule.
type cronField struct {
	name      string
	values    int // how many there are
	low, high int
	names     []string // of the values, from the lowest on
}

var cronFields = [6]cronField{
	{name: "second", values: 60, high: 59},
	{name: "minute", values: 60, high: 59},
	{name: "hour", values: 24, high: 23},
	{name: "day of month", values: 31, low: 1, high: 31},
	{name: "month", values: 12, low: 1, high: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", values: 7, high: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}, // 7 is Sunday, too
}

const (
	dayOfMonth = 3
	dayOfWeek  = 5
)

var parser = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// masks are the sets of values that six fields name, as the cron library has them.
func masks(fields []string) (*cron.SpecSchedule, error) {
	var wrong []string
	fields = slices.Clone(fields)
	for i, f := range cronFields {
		text, err := f.checked(fields[i], i == dayOfWeek)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		fields[i] = text
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("is not a rule of fields")
	}
	spec.Dom = starred(spec.Dom, fields[dayOfMonth])
	spec.Dow = starred(spec.Dow, fields[dayOfWeek])
	return spec, nil
}

// starBit marks the mask of a field that begins with a star.
const starBit = 1 << 63

// starred marks the mask as cron does, by how the field begins: */2 is a star, too. The
// library takes */2 for a list of days.
func starred(mask uint64, field string) uint64 {
	if field[0] == '*' || field[0] == '?' {
		return mask | starBit
	}
	return mask &^ starBit
}

// element is one of a field's list: * or ? or a value or a range, with or without a step.
var element = regexp.MustCompile(`^(?:([*?])|([0-9a-z]+)(?:-([0-9a-z]+))?)(?:/([0-9]+))?$`)

// checked refuses, in words of our own, what the library refuses, and what it takes without a word, such as an empty
// element or a step that leads out of the field at once. It writes out what the library does not know: Sunday as the
// seventh day.
func (f *cronField) checked(text string, weekday bool) (string, error) {
	list := strings.Split(text, ",")
	for i, e := range list {
		m := element.FindStringSubmatch(e)
		if m == nil {
			return "", fmt.Errorf("%s: %q is not a value, range or step; want for example 5, 1-5, */2, 1-9/2 or *", f.name, e)
		}
		step := 1
		if m[4] != "" {
			var err error
			if step, err = strconv.Atoi(m[4]); err != nil || step > f.values {
				return "", fmt.Errorf("%s: %q has a step of %s, but the field has only %d values", f.name, e, m[4], f.values)
			}
			if step == 0 {
				return "", fmt.Errorf("%s: %q has a step of 0; want at least 1", f.name, e)
			}
		}
		if m[1] != "" {
			continue
		}
		from, err := f.value(m[2])
		if err != nil {
			return "", err
		}
		to := from
		if m[3] != "" {
			if to, err = f.value(m[3]); err != nil {
				return "", err
			}
		}
		if weekday {
			if m[3] == "sun" && from > 0 || m[3] == "" && from == 7 {
				to = 7
			}
			if to == 7 {
				list[i] = untilSunday(from, step)
			}
		}
		if from > to {
			return "", fmt.Errorf("%s: %q ends before it begins; want the lower value first, or two ranges", f.name, e)
		}
	}
	return strings.Join(list, ","), nil
}

// value is the number that is meant.
func (f *cronField) value(s string) (int, error) {
	if i := slices.Index(f.names, s); i >= 0 {
		return f.low + i, nil
	}
	n, err := strconv.Atoi(s)
	switch {
	case err == nil && n >= f.low && n <= f.high:
		return n, nil
	case err == nil, errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is %s; want %d to %d", f.name, s, f.low, f.high)
	case f.names == nil:
		return 0, fmt.Errorf("%s: %q is not a number", f.name, s)
	default:
		return 0, fmt.Errorf("%s: %q is neither a number nor a name such as %s", f.name, s, f.names[1])
	}
}

// untilSunday lists the days of a range that ends on the seventh, which is the 0th.
func untilSunday(from, step int) string {
	var days []string
	for d := from; d <= 7; d += step {
		days = append(days, strconv.Itoa(d%7))
	}
	return strings.Join(days, ",")
}
