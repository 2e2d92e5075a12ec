package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

var (
	longDays   = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	longMonths = []string{"", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
)

// Words says for people when the rule fires: at 02:30 every day; every 5 minutes, Monday to Friday. What has no short
// form is said field by field. The words do not name the time zone.
func (c *Schedule) Words() string {
	if c.spec == nil {
		return "every " + lengthWords(c.every)
	}
	f := strings.Fields(c.normal)
	clock, fixed := clockWords(f[0], f[1], f[2])
	day := dayWords(f[dayOfMonth], f[4], f[dayOfWeek])
	switch {
	case day == "" && fixed:
		return clock + " every day"
	case day == "":
		return clock
	case fixed && strings.HasPrefix(day, "on "):
		return clock + " " + day
	default:
		return clock + ", " + day
	}
}

// clockWords says at which times of a day; fixed = at those of a clock.
func clockWords(second, minute, hour string) (words string, fixed bool) {
	second, minute, hour = whole(second, 60), whole(minute, 60), whole(hour, 24)
	s, atSecond := value(second)
	m, atMinute := value(minute)
	switch {
	case atSecond && atMinute && isList(hour):
		var times []string
		for h := range strings.SplitSeq(hour, ",") {
			n, _ := value(h)
			at := fmt.Sprintf("%02d:%02d", n, m)
			if s != 0 {
				at += fmt.Sprintf(":%02d", s)
			}
			times = append(times, at)
		}
		return "at " + listed(times), true
	case atSecond && atMinute && every(hour) > 0:
		words = each(every(hour), "hour")
		if m != 0 || s != 0 {
			words += " at minute " + strconv.Itoa(m)
		}
		return words + secondWords(s), false
	case atSecond && every(minute) > 0:
		return each(every(minute), "minute") + secondWords(s) + hourWords(hour), false
	case every(second) > 0 && every(minute) == 1:
		return each(every(second), "second") + hourWords(hour), false
	}
	words = "at "
	if !atSecond || s != 0 {
		words += valuesOf("second ", second, nil) + ", "
	}
	if every(minute) == 1 {
		return strings.TrimSuffix(words, ", ") + " of every minute" + hourWords(hour), false
	}
	return words + valuesOf("minute ", minute, nil) + hourWords(hour), false
}

// whole is a field whose steps are equally long, all around the clock: one in which they are not has its values instead.
func whole(field string, size int) string {
	step := every(field)
	if step == 0 || size%step == 0 {
		return field
	}
	var values []string
	for n := 0; n < size; n += step {
		values = append(values, strconv.Itoa(n))
	}
	return strings.Join(values, ",")
}

func secondWords(s int) string {
	if s == 0 {
		return ""
	}
	return " and second " + strconv.Itoa(s)
}

func hourWords(hour string) string {
	if every(hour) == 1 {
		return ""
	}
	return " of " + valuesOf("hour ", hour, nil)
}

// dayWords says on which days; "" = on all.
func dayWords(day, month, weekday string) string {
	var parts []string
	of := "the month"
	if every(month) != 1 {
		of = monthWords(month)
	}
	if every(day) != 1 {
		parts = append(parts, "on "+valuesOf("day ", day, nil)+" of "+of)
	}
	if every(weekday) != 1 {
		parts = append(parts, "on "+valuesOf("", weekday, longDays))
	}
	join := " or " // one of them is enough, unless a field begins with a star
	if strings.ContainsAny(day[:1]+weekday[:1], "*?") {
		join = " if it is "
	}
	words := strings.Join(parts, join)
	if every(day) == 1 && every(month) != 1 {
		words = strings.TrimPrefix(words+" in "+of, " ")
	}
	return strings.ReplaceAll(words, join+"on ", join)
}

// value is a field that has one.
func value(field string) (n int, is bool) {
	n, err := strconv.Atoi(field)
	return n, err == nil
}

// isList reports whether a field is one value or a few.
func isList(field string) bool {
	for v := range strings.SplitSeq(field, ",") {
		if _, is := value(v); !is {
			return false
		}
	}
	return strings.Count(field, ",") < 6
}

// every is n of a field */n, 1 of *, and 0 of others.
func every(field string) int {
	first, step, has := strings.Cut(field, "/")
	switch n, err := strconv.Atoi(step); {
	case first != "*" && first != "?" && (!has || first != "0"):
		return 0
	case !has:
		return 1
	case err == nil:
		return n
	default:
		return 0
	}
}

func each(n int, unit string) string {
	if n == 1 {
		return "every " + unit
	}
	return fmt.Sprintf("every %d %ss", n, unit)
}

// valuesOf says the values of a field, by their names if they have any, else with what they are numbers of.
func valuesOf(unit, field string, names []string) string {
	var out []string
	for e := range strings.SplitSeq(field, ",") {
		span, step, has := strings.Cut(e, "/")
		from, to, isRange := strings.Cut(span, "-")
		words := named(from, names)
		if isRange {
			words += " to " + named(to, names)
		}
		switch {
		case has && (span == "*" || span == "?"):
			return "every " + ordinal(step) + " " + strings.TrimSpace(unit)
		case has && isRange:
			words += " in steps of " + step
		case has:
			words += " and every " + step + " after"
		}
		out = append(out, words)
	}
	return unit + listed(out)
}

func ordinal(n string) string {
	suffix := "th"
	if teen := len(n) > 1 && n[len(n)-2] == '1'; !teen {
		switch n[len(n)-1] {
		case '1':
			suffix = "st"
		case '2':
			suffix = "nd"
		case '3':
			suffix = "rd"
		}
	}
	return n + suffix
}

func named(text string, names []string) string {
	n, is := value(text)
	for i, name := range names {
		if is && (i == n || n == 7 && i == 0 && name != "") || !is && name != "" && strings.HasPrefix(strings.ToLower(name), text) {
			return name
		}
	}
	return text
}

func listed(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return words[0]
}

// lengthWords is a duration of whole seconds.
func lengthWords(d time.Duration) string {
	var parts []string
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		n := d / unit.size
		d -= n * unit.size
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit.name))
		}
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "1 ")
	}
	return listed(parts)
}

func monthWords(month string) string {
	if every(month) > 1 {
		return "every " + ordinal(strconv.Itoa(every(month))) + " month"
	}
	return valuesOf("", month, longMonths)
}

// DayOfMonth says on which day a monthly plan has its steps, as its plan_value has it.
func DayOfMonth(value int) string {
	switch {
	case value > 0:
		return fmt.Sprintf("on day %d", value)
	case value == 0:
		return "on the last day"
	case value == -1:
		return "1 day before the last"
	default:
		return fmt.Sprintf("%d days before the last", -value)
	}
}
