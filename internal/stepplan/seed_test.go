package stepplan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// timeLines are the lines of seed 001 that contain a rule for the times of plans: all of 3.3.1 to 3.3.4,
// and what 1.2, 1.3 and 3.2 say of them.
var timeLines = []int{
	18, 22, 26, 30, 34, 38, 42, 46, 90, 95, 104, 114, 206,
	212, 213, 214, 216, 217,
	220, 221, 222, 223, 224, 225, 227,
	230, 231, 232, 233, 234,
	237, 238, 239, 240, 241, 242, 243,
}

// lifeLines are those that contain a rule for what happens to a plan: the second 3.3, 3.4, 3.5, 4 and 5.
var lifeLines = []int{
	246, 248, 249, 250, 251, 253, 255, 257, 258, 259, 262, 263, 264, 266, 267, 269,
	272, 274, 275, 276, 277, 278, 279, 281, 284, 285, 286, 291, 292, 296, 298, 300, 302, 304,
}

// TestSeed runs testdata/*.txt: the rules of seed 001, sentence by sentence. Each subtest is one rule, with
// the line of the seed that states it. `go test ./internal/stepplan -run Seed -rewrite` writes the outputs
// anew: read the diff. Times are those of the plan's zone; Monday 2026-11-23T13:00:00Z is the time of
// publication if at= is missing.
//
//	plan lines=(226) type=T [value=N] [repet=N] [time=T] [zone=Z] [no_keep] [at=T]
//	                   a plan is published; its first step, or what is wrong with it
//	ends T             the last step ends at the time; the next one
//	preview N [at=T]   the next N steps
//	elsewhere lines=(248) test=plan.TestX    a test that needs a database or processes shows the rule
func TestSeed(t *testing.T) {
	shown := map[int]bool{}
	scenario.Files(t, func() func(scenario.Command) string {
		var s *published
		return func(c scenario.Command) string {
			for _, line := range c.Values("lines") {
				n, err := strconv.Atoi(line)
				require.NoError(c.T, err, c.Pos())
				shown[n] = true
			}
			switch c.Name() {
			case "plan":
				require.NotEmpty(c.T, c.Values("lines"), "%s: name the lines of the seed", c.Pos())
				s = &published{}
				return s.publish(c)
			case "ends":
				return s.next(c, timeOf(c, c.Word(0)))
			case "preview":
				return s.preview(c)
			case "elsewhere":
				return c.FindTest()
			}
			c.Unknown("command " + c.Name())
			return ""
		}
	})
	for _, line := range slices.Concat(timeLines, lifeLines) {
		require.True(t, shown[line], "line %d of seed 001 has no scenario", line)
	}
}

// published is a plan.
type published struct{ plan *repeat.Plan }

func timeOf(c scenario.Command, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(c.T, err, c.Pos())
	return at.UTC()
}

func at(c scenario.Command) time.Time {
	if c.Has("at") {
		return timeOf(c, c.Value("at"))
	}
	return now
}

func (s *published) publish(c scenario.Command) string {
	spec := repeat.Spec{
		Station: "t", Messages: []any{"m"},
		PlanType: repeat.Type(c.Value("type")), NoKeep: c.Has("no_keep"), Timezone: c.Value("zone"),
	}
	for key, into := range map[string]*int{"value": &spec.PlanValue, "repet": &spec.PlanRepet} {
		if c.Has(key) {
			*into = c.Number(key)
		}
	}
	if c.Has("time") {
		spec.PlanTime = timeOf(c, c.Value("time"))
	}
	p, err := Build(&spec, "p", at(c))
	if err != nil {
		return err.Error()
	}
	s.plan = p
	return s.next(c, at(c))
}

func (s *published) next(c scenario.Command, now time.Time) string {
	next, err := NextPlanTime(s.plan, now)
	require.NoError(c.T, err, c.Pos())
	s.plan.Step, s.plan.PlanTime = next.Step, next.At
	var lines []string
	if next.Skipped > 0 {
		lines = append(lines, fmt.Sprintf("skipped %d", next.Skipped))
	}
	if next.Why != "" {
		lines = append(lines, "because "+next.Why)
	}
	if next.Over {
		return strings.Join(append(lines, "over"), "\n")
	}
	return strings.Join(append(lines, fmt.Sprintf("step %d %s", next.Step, s.show(c, next.At))), "\n")
}

func (s *published) preview(c scenario.Command) string {
	n, err := strconv.Atoi(c.Word(0))
	require.NoError(c.T, err, c.Pos())
	entries, err := Preview(s.plan, at(c), time.Time{}, n)
	require.NoError(c.T, err, c.Pos())
	var lines []string
	for _, e := range entries {
		switch {
		case e.Over:
			lines = append(lines, "over, because "+e.Why)
		case e.Skipped > 0:
			lines = append(lines, fmt.Sprintf("step %d %s and %d more skipped, because %s", e.Step, s.show(c, e.At), e.Skipped-1, e.Why))
		default:
			lines = append(lines, fmt.Sprintf("step %d %s", e.Step, s.show(c, e.At)))
		}
	}
	return strings.Join(lines, "\n")
}

// show is a time as the clocks of the plan's zone show it.
func (s *published) show(c scenario.Command, at time.Time) string {
	g, err := gridOf(s.plan)
	require.NoError(c.T, err, c.Pos())
	return at.In(g.zone).Format("Mon " + time.RFC3339Nano)
}
