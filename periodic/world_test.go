package periodic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

var epoch = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// world is one rule with its tasks and records in virtual time: what the database would
// hold, without one.
type world struct {
	t     require.TestingT
	now   time.Time
	rule  *schedule.Rule
	cal   *calendar.Schedule
	tasks map[string]*model.Task   // by id
	runs  map[string]*schedule.Run // by id
	by    map[string]string        // of a run: the plan that sent its task
	plans map[string]bool          // ids of all that was ever planned
	begun map[string]bool          // runs that a worker has begun
	wants []tick                   // that must be covered
	from  time.Time                // after it the current calendar's ticks are wanted
	log   []string                 // what was carried out since somebody looked
}

type tick struct{ at time.Time }

func newWorld(t require.TestingT, s schedule.Spec) *world {
	w := &world{t: t, now: epoch, from: epoch, tasks: map[string]*model.Task{}, runs: map[string]*schedule.Run{}, by: map[string]string{}, plans: map[string]bool{}, begun: map[string]bool{}}
	var err error
	w.rule, w.cal, err = rulespec.Build(&s, epoch)
	require.NoError(t, err)
	w.rule.ID, w.rule.CreatedAt, w.rule.Decision = "r", epoch, "mark"
	return w
}

// write is what a decision's guarded write does: what it plans is appended.
func (w *world) write(after *schedule.Rule) {
	if after == nil {
		w.note("nothing")
		return
	}
	require.Greater(w.t, after.Rev, w.rule.Rev, "the rev rises")
	require.Equal(w.t, w.rule.Decision, after.Decision, "the write gives it a mark of its own only if it has the last one")
	require.False(w.t, after.DecidedTo.Before(w.rule.DecidedTo), "what is decided stays decided")
	for _, p := range after.Planned {
		if slices.ContainsFunc(w.rule.Planned, func(q schedule.Planned) bool { return q.ID == p.ID }) {
			continue
		}
		require.False(w.t, w.plans[p.ID], "an id for two plans: %s", p.ID)
		w.plans[p.ID] = true
	}
	require.Equal(w.t, len(after.Planned) > 0, !after.PlannedAt.IsZero(), "the mark of what is planned")
	w.rule = after
}

// decide writes a decision and carries it out.
func (w *world) decide(after *schedule.Rule) {
	w.write(after)
	w.carryOut(1 << 30)
}

// carryOut does what is planned, in the engine's order, but for a crash after so many steps.
func (w *world) carryOut(steps int) {
	step := func() bool { steps--; return steps >= 0 }
	for _, p := range w.rule.Planned {
		if p.Task == nil {
			continue
		}
		if !step() {
			return
		}
		run := p.Task.Origin.Tick.Run
		if by := w.by[run]; by != "" {
			require.Equal(w.t, by, p.ID, "two decisions sent the run %s", run)
			continue
		}
		w.by[run] = p.ID
		w.tasks[p.Task.ID] = p.Task
		w.note("send %s", w.name(run))
	}
	for _, p := range w.rule.Planned {
		if p.Record == nil {
			continue
		}
		if !step() {
			return
		}
		if old := w.runs[p.Record.ID]; old == nil || old.Rev <= p.Record.Rev {
			w.runs[p.Record.ID] = p.Record
			w.note("%s", w.record(p.Record))
		}
	}
	for _, p := range w.rule.Planned {
		for _, id := range p.Cancel {
			if t := w.tasks[id]; t != nil && t.FinishedAt.IsZero() {
				t.CancelRequestedAt = w.now
				w.note("cancel %s", w.name(t.Origin.Tick.Run))
			}
		}
	}
	if !step() {
		return
	}
	c := *w.rule
	c.Planned, c.PlannedAt = nil, time.Time{}
	w.rule = &c
}

// look is what an engine does at the present time.
func (w *world) look() {
	for n := 0; ; n++ {
		require.Less(w.t, n, 1000, "the engine never comes to rest")
		after := tickplan.Plan(w.known(), w.cal, w.now)
		if after == nil {
			return
		}
		require.Equal(w.t, w.rule.UpdatedAt, after.UpdatedAt, "a tick is no edit")
		w.decide(after)
	}
}

// known is the rule as an engine decides about it, which reads what workers have begun.
func (w *world) known() *schedule.Rule { return tickplan.Begun(w.rule, w.begun) }

// running are the tasks that have not ended, in the order of their runs.
func (w *world) running() (out []*model.Task) {
	for _, t := range w.tasks {
		if t.FinishedAt.IsZero() {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *model.Task) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// edit changes the rule; what the old times name up to now is wanted still.
func (w *world) edit(s schedule.Spec) {
	edited, _, err := rulespec.Build(&s, w.now)
	require.NoError(w.t, err)
	edited.CreatedAt = w.rule.CreatedAt
	cal, err := calendar.Parse(calendar.Spec{Cron: edited.Cron, Timezone: edited.Timezone, Start: cmp.Or(edited.StartAt, edited.CreatedAt)})
	require.NoError(w.t, err)
	after := tickplan.Edit(w.rule, w.cal, cal, edited, w.now)
	w.want(after.DecidedTo)
	w.cal = cal
	w.decide(after)
}

// want notes the ticks of the present calendar up to a time.
func (w *world) want(to time.Time) {
	for t := range w.cal.Ticks(w.from) {
		if t.At.After(to) || !w.rule.EndAt.IsZero() && !t.At.Before(w.rule.EndAt) {
			break
		}
		if t.Fires {
			w.wants = append(w.wants, tick{t.At})
		}
	}
	w.from = clock.Later(w.from, to)
}

// requireCovered demands of every tick that is decided exactly one record.
func (w *world) requireCovered() {
	w.want(w.rule.DecidedTo)
	covered := map[int64]int{}
	var spans int64
	for _, r := range w.runs {
		switch {
		case r.Manual:
		case r.Count > 1:
			spans += r.Count
			for _, x := range w.wants {
				if !x.at.Before(r.Nominal) && !x.at.After(r.Last) {
					covered[x.at.Unix()]++
				}
			}
		default:
			spans++
			covered[r.Nominal.Unix()]++
		}
	}
	for _, x := range w.wants {
		require.Equal(w.t, 1, covered[x.at.Unix()], "records of the tick %s", x.at.Format("02 15:04:05"))
	}
	require.EqualValues(w.t, len(w.wants), spans, "records of what is no tick")
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// name is a run's id, for people: its minute and second.
func (w *world) name(id string) string {
	id = strings.TrimPrefix(id, w.rule.ID)
	if at, request, _ := strings.Cut(id, "!"); strings.HasPrefix(at, "@") {
		t, err := time.Parse("@2006-01-02T15:04:05Z", at)
		require.NoError(w.t, err)
		name := stamp(t)
		if request != "" {
			name += "!" + request
		}
		return name
	}
	return id
}

func stamp(t time.Time) string {
	s := t.Format("04:05")
	if t.Before(epoch) || t.Sub(epoch) >= time.Hour {
		s = t.Format("2T15:04:05")
	}
	if ms := t.Nanosecond() / 1e6; ms > 0 {
		s += fmt.Sprintf(".%03d", ms)
	}
	return s
}

func (w *world) record(r *schedule.Run) string {
	s := w.name(r.ID) + " " + string(r.Status)
	if r.Reason != "" {
		s += " " + r.Reason
	}
	if r.Count > 1 {
		s += fmt.Sprintf(" ×%d to %s", r.Count, stamp(r.Last))
	}
	if r.Attempt > 1 {
		s += fmt.Sprintf(" #%d", r.Attempt)
	}
	if r.Error != "" {
		s += " (" + r.Error + ")"
	}
	return s
}

// TestAYearOfAThousandRulesTakesNoYear decides a year of rules that fire each week, some
// each day and a few each hour, whose runs end after ten minutes.
func TestAYearOfAThousandRulesTakesNoYear(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	sent := 0
	for n := range 1000 {
		spec := schedule.Spec{Name: "n", Type: "t", Cron: fmt.Sprintf("%d %d %d * * %d", n%60, n%59, n%24, n%7), Timezone: "America/New_York", MaxConcurrency: 1}
		want := 52
		switch {
		case n%100 == 0:
			spec.Cron, spec.Timezone, want = "0 7 * * * *", "", 365*24
		case n%10 == 0:
			spec.Cron, want = fmt.Sprintf("0 %d 1-3/2,8 * * *", n%60), 365*3
		}
		r, cal, err := rulespec.Build(&spec, epoch)
		require.NoError(t, err)
		r.ID = "r"
		r = tickplan.Enable(r, cal, epoch)
		got := 0
		for end := epoch.AddDate(1, 0, 0); r.NextFireAt.Before(end); {
			at := r.NextFireAt
			r = tickplan.Plan(r, cal, at)
			for _, p := range r.Planned {
				if p.Task != nil {
					got++
					r = tickplan.Ended(r, p.Task, schedule.RunSuccess, "", at.Add(10*time.Minute))
				}
			}
			r.Planned = nil
		}
		require.InDelta(t, want, got, 1, "runs of %s", spec.Cron) // the last may come after the year, by the zone
		require.Empty(t, r.Active)
		sent += got
	}
	require.Greater(t, sent, 200_000)
}

// TestATickThatNewZoneDataMovesEarlierRuns decides daily ticks after an upgrade of the time zone data. Until then
// every engine waited for the old time.
func TestATickThatNewZoneDataMovesEarlierRuns(t *testing.T) {
	for mode, want := range map[schedule.CatchUpMode][]string{
		schedule.CatchUpNone: {"07:00", "07:30"}, schedule.CatchUpCompact: {"07:00", "07:30"}, schedule.CatchUpFull: {"07:00", "07:30"},
	} {
		w := newWorld(t, schedule.Spec{Name: "n", Type: "t", Cron: "0 0,30 3 * * *", Timezone: "Etc/GMT+5", CatchUp: schedule.CatchUp{Mode: mode}})
		w.decide(tickplan.Enable(w.rule, w.cal, w.now))
		w.now = w.rule.NextFireAt
		require.Equal(t, 8, w.now.Hour())
		moved, err := calendar.Parse(calendar.Spec{Cron: w.rule.Cron, Timezone: "Etc/GMT+4", Start: epoch})
		require.NoError(t, err)
		w.cal = moved
		w.look()
		var ran []string
		for _, r := range w.runs {
			require.Equal(t, schedule.RunScheduled, r.Status, "%s: %s", mode, r.Reason)
			ran = append(ran, r.Nominal.Format("15:04"))
		}
		slices.Sort(ran)
		require.Equal(t, want, ran, mode)
		require.Equal(t, w.now.Add(23*time.Hour), w.rule.NextFireAt)
	}
}

func TestAnyHistoryCoversEveryTickOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { history(t) })
}
