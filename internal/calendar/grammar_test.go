package calendar

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// rule is a random rule, with what the oracle knows of it: the values that each field
// means, and whether it begins with a star.
type rule struct {
	expr string
	has  [6][60]bool
	star [6]bool

	day   int64 // the last that was asked about, as days since 1970
	isDay bool
}

var (
	bounds     = [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	monthNames = strings.Fields("- jan feb mar apr may jun jul aug sep oct nov dec")
	dayNames   = strings.Fields("sun mon tue wed thu fri sat sun")
)

// randomRule uses the whole grammar of fields.
func randomRule(r *rand.Rand) *rule {
	o := &rule{day: -1 << 40}
	parts := make([]string, 6)
	for i := range parts {
		list := []string{}
		n := 1
		if r.IntN(4) == 0 {
			n += r.IntN(3)
		}
		if i >= 3 && r.IntN(2) == 0 { // else most rules have no day in any span
			n = 0
			list = append(list, o.element(r, i, r.IntN(2)))
		}
		for range n {
			kind := r.IntN(8)
			if i == 0 && r.IntN(3) > 0 {
				kind = 7 // not too many fire each second
			}
			list = append(list, o.element(r, i, kind))
		}
		parts[i] = strings.Join(list, ",")
		o.star[i] = parts[i][0] == '*' || parts[i][0] == '?'
	}
	o.expr = strings.Join(parts, " ")
	if parts[0] == "0" {
		o.expr = strings.Join(parts[1:], " ")
	}
	return o
}

// element makes one of a list, and notes what it means.
func (o *rule) element(r *rand.Rand, i, kind int) string {
	low, high := bounds[i][0], bounds[i][1]
	most := high
	if i == 5 {
		most = 7
	}
	values := high - low + 1
	from := low + r.IntN(most-low+1)
	if i == 2 && r.IntN(2) == 0 {
		from = r.IntN(4) // where zones shift
	}
	to := from + r.IntN(most-from+1)
	step := 1 + r.IntN(min(values, 12))
	star := []string{"*", "*", "*", "?"}[r.IntN(4)]
	put := func(from, to, step int) {
		for v := from; v <= to; v += step {
			if i == 5 {
				o.has[i][v%7] = true
			} else {
				o.has[i][v] = true
			}
		}
	}
	switch kind {
	case 0:
		put(low, high, 1)
		return star
	case 1:
		step = 1 + r.IntN(values)
		put(low, high, step)
		return fmt.Sprintf("%s/%d", star, step)
	case 2, 3:
		put(from, to, 1)
		return o.text(r, i, from, false) + "-" + o.text(r, i, to, from > 0)
	case 4, 5:
		put(from, to, step)
		return fmt.Sprintf("%s-%s/%d", o.text(r, i, from, false), o.text(r, i, to, from > 0), step)
	case 6:
		put(from, max(from, high), step)
		return fmt.Sprintf("%s/%d", o.text(r, i, from, false), step)
	default:
		put(from, from, 1)
		return o.text(r, i, from, true)
	}
}

// text writes a value, by name where it has one. sun is the seventh day only behind others.
func (o *rule) text(r *rand.Rand, i, v int, sunday bool) string {
	name := ""
	switch {
	case i == 4:
		name = monthNames[v]
	case i == 5 && (v < 7 || sunday):
		name = dayNames[v]
	}
	switch {
	case name != "" && r.IntN(2) == 0:
		if i == 5 && v == 0 && sunday {
			return "0"
		}
		return []string{name, strings.ToUpper(name)}[r.IntN(2)]
	case r.IntN(8) == 0:
		return fmt.Sprintf("%02d", v)
	default:
		return fmt.Sprint(v)
	}
}

// perDay is how often it fires on a day of its days.
func (o *rule) perDay() int {
	n := 1
	for _, field := range o.has[:3] {
		k := 0
		for _, has := range field {
			if has {
				k++
			}
		}
		n *= k
	}
	return n
}

// allHours says whether it means "every so often".
func (o *rule) allHours() bool {
	for _, has := range o.has[2][:24] {
		if !has {
			return false
		}
	}
	return true
}
