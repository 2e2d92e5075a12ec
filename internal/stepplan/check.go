package stepplan

import (
	"errors"
	"math"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Bounds of a plan.
const (
	maxInterval = 32_767
	maxRepet    = math.MaxInt32
	maxStep     = 1 << 53 // of a stored plan, far beyond the year 9999

	// MaxMessages is how many messages a plan has at most.
	MaxMessages = 1000
	// MaxMessageBytes bounds all messages of a plan together, as BSON. Each step is sent all of them:
	// with the other fields they are the arguments of a task.
	MaxMessageBytes = input.MaxArgsBytes - 16<<10
)

// values are the least and the greatest plan_value of each type; {0, 0} = it has no meaning.
var values = map[repeat.Type][2]int{
	repeat.None:   {},
	repeat.Time:   {},
	repeat.Second: {0, maxInterval},
	repeat.Minute: {0, maxInterval},
	repeat.Hour:   {0, maxInterval},
	repeat.Day:    {0, maxInterval},
	repeat.Week:   {0, 6},
	repeat.Month:  {-31, 31},
}

// problems gathers what is wrong.
type problems []error

func (e *problems) bad(field, format string, args ...any) {
	*e = append(*e, input.Invalid(field, format, args...))
}

func (e *problems) add(err error) {
	if err != nil {
		*e = append(*e, err)
	}
}

func (e *problems) joined() error { return errors.Join(*e...) }

// Check says what is wrong with a stored plan that somebody has changed: its station, its messages, or
// what its times follow from. The error joins everything that is wrong; nil = nothing.
func Check(p *repeat.Plan) error {
	var e problems
	e.station(p.Station)
	if list, isArray := p.Messages.ArrayOK(); !isArray {
		e.bad("messages", "are missing")
	} else if values, err := list.Values(); err != nil || len(values) == 0 {
		e.bad("messages", "are missing")
	}
	_, err := gridOf(p)
	e.add(err)
	return e.joined()
}

func (e *problems) station(name string) { e.add(input.UserType("station", name)) }

// times checks what the times of a plan follow from, and finds its zone.
func (e *problems) times(p *repeat.Plan) *time.Location {
	zone, err := calendar.Zone(p.Timezone)
	if err != nil {
		e.bad("timezone", "%q is not a zone of the time zone database, such as Europe/Berlin", safetext.Clip(p.Timezone, 120))
	}
	bounds, known := values[p.PlanType]
	switch n := p.PlanValue; {
	case !known:
		e.bad("plan_type", "is %q; want one of none, time, second, minute, hour, day, week, month", safetext.Clip(string(p.PlanType), 40))
	case bounds == [2]int{}:
	case n < bounds[0] || n > bounds[1]:
		e.bad("plan_value", "is %d; want %d to %d for the type %s", n, bounds[0], bounds[1], p.PlanType)
	}
	if n := p.PlanRepet; known && repeats(p.PlanType) && n != -1 && (n < 1 || n > maxRepet) {
		e.bad("plan_repet", "is %d; want 1 to %d, or -1 for no end, for the type %s", n, maxRepet, p.PlanType)
	}
	if _, elapsed := units[p.PlanType]; p.Start.IsZero() && (elapsed || p.PlanType == repeat.Time || p.PlanType == repeat.Day) {
		e.bad("plan_time", "is missing; the type %s needs one", p.PlanType)
	}
	e.add(input.Renamed(input.Start(p.Start), func(string) string { return "plan_time" }))
	if p.Step < 0 || p.Step > maxStep {
		e.bad("step", "is %d; want 0 to %d", p.Step, int64(maxStep))
	}
	return zone
}

// repeats reports whether plans of the type may have several steps.
func repeats(t repeat.Type) bool { return t != repeat.None && t != repeat.Time }
