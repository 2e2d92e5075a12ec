package periodic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// TestScenarios runs testdata/*.txt: one rule in virtual time, what people, engines and runs
// do, and under ---- what was sent, recorded and cancelled, in the order in which it was
// carried out, and the rule as it is then. Times are minute:second of the first hour.
// `go test ./periodic -run Scenarios -rewrite` writes the outputs anew: read the diff.
//
//	rule [overlap=] [failure=] [max=] [concurrency=] [queue=] [catch-up=] [window=] [cap=]
//	    [max-runs=] [start=] [end=] [log=]    a rule of each ten seconds, or of the line below; not enabled
//	enable, disable [NOTE], delete, edit …    as rule, from what it is
//	until 00:30      an engine looks each second up to then
//	at 00:30         an engine looks only then; nobody did in between
//	clock 00:10      the clock says so; nobody looks
//	begin 00:10      a worker begins the run's task
//	end 00:10 ok|failed|timeout|completion|canceled    the run's task ends and the rule learns of it
//	again 00:10 …    the rule learns of it once more
//	trigger REQUEST [force], backfill 00:00 00:30 REQUEST, cancel 00:10
//	plan             an engine decides, writes that and dies
//	sweep            another carries out what was left
//	records          all records in their order
func TestScenarios(t *testing.T) {
	t.Parallel()
	scenario.Files(t, func() func(scenario.Command) string {
		var w *world
		return func(c scenario.Command) string {
			switch c.Name() {
			case "rule":
				w = newWorld(c.T, scenarioSpec(c, schedule.Spec{Name: "n", Type: "t", Cron: "*/10 * * * * *"}))
				return w.state()
			case "records":
				return w.records()
			}
			before, _ := json.Marshal(w.rule)
			input := w.rule
			w.do(c)
			after, _ := json.Marshal(input)
			require.JSONEq(c.T, string(before), string(after), "a decision changed its input")
			out := append(w.log, w.state())
			w.log = nil
			return strings.Join(out, "\n")
		}
	})
}

func (w *world) do(c scenario.Command) {
	t, word := c.T, c.Word
	switch c.Name() {
	case "enable":
		w.decide(tickplan.Enable(w.rule, w.cal, w.now))
	case "disable":
		w.decide(tickplan.Disable(w.rule, w.cal, strings.Join(c.Words(), " "), w.now))
	case "delete":
		w.decide(tickplan.Delete(w.rule, w.cal, w.now))
	case "edit":
		w.edit(scenarioSpec(c, SpecOf(w.rule)))
	case "until":
		for end := clockTime(t, word(0)); w.now.Before(end); {
			w.now = w.now.Add(time.Second)
			w.look()
		}
	case "at":
		w.now = clockTime(t, word(0))
		w.look()
	case "clock":
		w.now = clockTime(t, word(0))
	case "begin":
		w.begun[w.id(t, word(0))] = true
	case "end", "again":
		task := w.task(t, word(0))
		require.Equal(t, c.Name() == "again", !task.FinishedAt.IsZero(), c.Pos())
		if c.Name() == "end" {
			task.FinishedAt = w.now
		}
		w.decide(tickplan.Ended(w.known(), task, map[string]schedule.RunStatus{
			"ok": schedule.RunSuccess, "failed": schedule.RunFailed, "timeout": schedule.RunTimeout,
			"completion": schedule.RunFailedTimeout, "canceled": schedule.RunCanceled,
		}[word(1)], "", w.now))
	case "trigger":
		w.decide(tickplan.Trigger(w.rule, w.cal, word(0), c.Has("force"), w.now))
	case "backfill":
		var ticks []time.Time
		for x := range w.cal.Ticks(clockTime(t, word(0)).Add(-1)) {
			if !x.At.Before(clockTime(t, word(1))) {
				break
			}
			ticks = append(ticks, x.At)
		}
		w.decide(tickplan.Backfill(w.rule, w.cal, word(2), ticks, w.now))
	case "cancel":
		w.decide(tickplan.Cancel(w.rule, w.cal, w.id(t, word(0)), w.now))
	case "plan":
		w.write(tickplan.Plan(w.known(), w.cal, w.now))
	case "sweep":
		w.carryOut(1 << 30)
	default:
		c.Unknown("command " + c.Name())
	}
}

func clockTime(t *testing.T, s string) time.Time {
	at, err := time.Parse("04:05", s)
	if err != nil {
		at, err = time.Parse("15:04:05", s)
	}
	require.NoError(t, err)
	return epoch.Add(at.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func (w *world) id(t *testing.T, name string) string {
	if strings.HasPrefix(name, "!") {
		return w.rule.ID + name
	}
	at, request, manual := strings.Cut(name, "!")
	id := tickplan.TickID(w.rule.ID, clockTime(t, at))
	if manual {
		id += "!" + request
	}
	return id
}

func (w *world) task(t *testing.T, name string) *model.Task {
	id := w.id(t, name)
	for _, task := range w.tasks {
		if task.Key == id {
			return task
		}
	}
	require.Failf(t, "no task", "of the run %s", name)
	return nil
}

func (w *world) state() string {
	r := w.rule
	s := "= " + r.Status
	if r.PauseNote != "" {
		s += " (" + r.PauseNote + ")"
	}
	if !r.NextFireAt.IsZero() {
		s += " next=" + stamp(r.NextFireAt)
	}
	for _, a := range r.Active {
		s += " runs:" + w.name(a.ID)
	}
	for _, q := range r.Queued {
		s += " waits:" + w.name(q.ID)
	}
	if len(r.Planned) > 0 {
		s += fmt.Sprintf(" planned=%d", len(r.Planned))
	}
	return s
}

func (w *world) records() string {
	var lines []string
	for _, r := range w.runs {
		lines = append(lines, w.record(r))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func scenarioSpec(c scenario.Command, s schedule.Spec) schedule.Spec {
	if cron := c.Input(); cron != "" {
		s.Cron = cron
	}
	for _, key := range c.Keys() {
		v := c.Value(key)
		require.NotEmpty(c.T, v, c.Pos())
		switch key {
		case "overlap":
			s.Overlap = schedule.OverlapPolicy(v)
		case "failure":
			s.OnFailure = schedule.FailurePolicy(v)
		case "max":
			s.MaxConcurrency = c.Number(key)
		case "concurrency":
			s.Concurrency = schedule.ConcurrencyPolicy(v)
		case "queue":
			s.QueueLimit = c.Number(key)
		case "catch-up":
			s.CatchUp.Mode = schedule.CatchUpMode(v)
		case "cap":
			s.CatchUp.Cap = c.Number(key)
		case "window":
			s.CatchUp.Window = c.Duration(v)
		case "max-runs":
			s.MaxRuns = int64(c.Number(key))
		case "start":
			s.StartAt = clockTime(c.T, v)
		case "end":
			s.EndAt = clockTime(c.T, v)
		case "log":
			s.Log = schedule.RunLog(v)
		default:
			c.Unknown("option " + key)
		}
	}
	return s
}
