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
	name   string
	values int      // how many there are
	names  []string // of the values, from the lowest on
	low    int
}

var cronFields = [6]cronField{
	{name: "second", values: 60},
	{name: "minute", values: 60},
	{name: "hour", values: 24},
	{name: "day of month", values: 31, low: 1},
	{name: "month", values: 12, low: 1, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", values: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
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
		if err == nil {
			err = alone(i, text)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", f.name, err))
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

// alone asks the library about one field, so that the error can name it.
func alone(i int, text string) error {
	fields := []string{"*", "*", "*", "*", "*", "*"}
	fields[i] = text
	_, err := parser.Parse(strings.Join(fields, " "))
	return err
}

// element is one of a field's list: * or ? or a value or a range, with or without a step.
var element = regexp.MustCompile(`^(?:([*?])|([0-9a-z]+)(?:-([0-9a-z]+))?)(?:/([0-9]+))?$`)

// checked refuses what the library takes without a word, such as an empty element or a step
// that leads out of the field at once, and writes out what it does not know: Sunday as the
// seventh day.
func (f *cronField) checked(text string, weekday bool) (string, error) {
	list := strings.Split(text, ",")
	for i, e := range list {
		m := element.FindStringSubmatch(e)
		if m == nil {
			return "", fmt.Errorf("%q is not a value, range or step; want for example 5, 1-5, */2, 1-9/2 or *", e)
		}
		step := 1
		if m[4] != "" {
			var err error
			if step, err = strconv.Atoi(m[4]); err != nil || step > f.values {
				return "", fmt.Errorf("%q has a step of %s, but the field has only %d values", e, m[4], f.values)
			}
			if step == 0 {
				return "", fmt.Errorf("%q has a step of 0; want at least 1", e)
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
			if to == 7 && from <= to {
				list[i] = untilSunday(from, step)
			}
		}
	}
	return strings.Join(list, ","), nil
}

// value is the number that is meant. Whether the field has it is the library's to say.
func (f *cronField) value(s string) (int, error) {
	if i := slices.Index(f.names, s); i >= 0 {
		return f.low + i, nil
	}
	n, err := strconv.Atoi(s)
	switch {
	case err == nil:
		return n, nil
	case f.names == nil:
		return 0, fmt.Errorf("%q is not a number", s)
	default:
		return 0, fmt.Errorf("%q is neither a number nor a name such as %s", s, f.names[1])
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
