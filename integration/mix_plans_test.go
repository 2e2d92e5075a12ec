package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// mixedPlan is a plan of a mix.
type mixedPlan struct {
	repeat.Spec
	at     time.Time // of its publication
	resets []time.Time
}

func (m *mix) planSpec(id string, long bool) repeat.Spec {
	r := m.r
	errs := r.IntN(2)
	s := repeat.Spec{
		PlanID: id, Station: oneOf(r, "step", "step", "slowstep", "flakystep", "wrongstep"), PlanType: oneOf(r, repeat.None, repeat.Time, repeat.Second, repeat.Second, repeat.Second, repeat.Minute),
		PlanValue: 1 + r.IntN(5), PlanRepet: 1 + r.IntN(12), NoKeep: m.of(0.5), Messages: []any{"m"},
		Options: model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Second, MaxErrors: &errs}},
	}
	if long {
		s.PlanType, s.PlanRepet, s.PlanValue = oneOf(r, repeat.Hour, repeat.Day, repeat.Minute), 1+r.IntN(2), 1
	}
	switch s.PlanType { //nolint:exhaustive // the others have values
	case repeat.Minute:
		s.PlanValue, s.PlanRepet = 1, 1+r.IntN(3)
	case repeat.Day: // the next is near
		s.PlanRepet, s.PlanTime = 1, time.Now().Add(-23*time.Hour)
	case repeat.Time:
		s.PlanTime = time.Now().Add(m.upTo(time.Minute))
	case repeat.Second:
		if m.of(0.3) {
			s.PlanTime = time.Now().Add(m.upTo(30*time.Second) - 10*time.Second)
		}
	}
	if s.PlanType == repeat.Day {
		s.Timezone = oneOf(r, "", "Europe/Berlin", "America/New_York")
	}
	if m.of(0.2) {
		s.Options.ConcurrentWorkerCount = 2
	}
	return s
}

func (m *mix) handleStep(ctx context.Context, e *mixRun) (string, error) {
	r := keyed(e.TaskID, e.ID)
	span := 300 * time.Millisecond
	if e.Type == "slowstep" {
		span = 8 * time.Second
	}
	select {
	case <-time.After(time.Duration(r.Int64N(int64(span)))):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch {
	case e.Type == "flakystep" && r.IntN(2) == 0:
		return "", errors.New("flaky")
	case e.Type == "wrongstep" && r.IntN(3) == 0:
		return "", consumer.PlanError(errors.New("wrong"))
	}
	return e.ID, nil
}

func TestStepsOfAMixFollowInTime(t *testing.T) {
	for seed := range testdb.Mixes(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playMix(t, seed, 3, func(m *mix) { mixPlans(m, seed%5 == 0) }) })
	}
}

func mixPlans(m *mix, long bool) {
	t, ctx := m.t, m.t.Context()
	m.handle = m.handleStep
	m.hires(2, "step", "slowstep", "flakystep", "wrongstep")
	for range 1 + m.r.IntN(3) {
		m.begins()
	}
	time.Sleep(m.upTo(time.Second))
	var plans []*mixedPlan
	publish := func() {
		s := m.planSpec(fmt.Sprint("p", len(plans)), long)
		p, err := m.plans.Publish(ctx, s)
		require.NoError(t, err)
		m.note("published %s: %+v", p.ID, s)
		plans = append(plans, &mixedPlan{Spec: s, at: time.Now()})
	}
	for range 1 + m.r.IntN(4) {
		publish()
	}
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(m.upTo(10 * time.Second)) {
		x := plans[m.r.IntN(len(plans))]
		switch what := m.r.IntN(10); what {
		case 0, 1:
			if len(m.engines) > 0 {
				m.ends(what == 1)
			}
		case 2, 3:
			if len(m.engines) < 3 {
				m.begins()
			}
		case 4:
			publish()
		case 5:
			p, err := m.plans.Publish(ctx, x.Spec)
			require.NoError(t, err)
			require.False(t, p.Created)
		case 6:
			if m.of(0.5) {
				p, err := m.plans.Cancel(ctx, "-/"+x.PlanID, "enough")
				require.NoError(t, err)
				m.note("%s cancelled: %s", x.PlanID, p.Status)
			}
		default:
			m.reset(plans)
		}
	}
	if len(m.engines) == 0 {
		m.begins()
	}
	m.note("the end")
	for _, x := range plans {
		limit := 30 * time.Minute
		if long {
			limit = 4 * time.Hour
		}
		for end := time.Now().Add(limit); ; time.Sleep(10 * time.Second) {
			m.reset(plans)
			p, err := m.plans.Get(ctx, "-/"+x.PlanID)
			require.NoError(t, err)
			if stepplan.Over(p.Status) && !p.EndedAt.IsZero() && len(p.Planned) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not over: %+v\n%s", x.PlanID, p, m.history())
			}
		}
	}
	for _, x := range plans {
		m.checkPlan(x)
	}
	m.idles()
	if testing.Verbose() {
		t.Log("\n" + m.history())
	}
}

// reset has the plans that are ERROR go on.
func (m *mix) reset(plans []*mixedPlan) {
	for _, x := range plans {
		p, err := m.plans.Get(m.t.Context(), "-/"+x.PlanID)
		require.NoError(m.t, err)
		if p.Status == repeat.StatusError {
			_, err := m.plans.Reset(m.t.Context(), p.ID)
			require.NoError(m.t, err)
			x.resets = append(x.resets, time.Now())
			m.note("%s reset", x.PlanID)
		}
	}
}

func (m *mix) checkPlan(x *mixedPlan) {
	t, ctx := m.t, m.t.Context()
	wrong := func(format string, args ...any) {
		t.Errorf("%s: %s", x.PlanID, fmt.Sprintf(format, args...))
	}
	p, err := m.plans.Get(ctx, "-/"+x.PlanID)
	require.NoError(t, err)
	results, err := m.plans.Results(ctx, p.ID, nil, 1000)
	require.NoError(t, err)
	cur, err := m.db.Collection("tasks").Find(ctx, bson.D{{Key: "origin.id", Value: p.ID}})
	require.NoError(t, err)
	var tasks []*model.Task
	require.NoError(t, cur.All(ctx, &tasks))
	slices.SortFunc(tasks, func(a, b *model.Task) int { return int(a.Origin.Step - b.Origin.Step) })
	succeeded := int64(0)
	last := x.at
	var worst time.Duration
	for _, task := range tasks {
		n := 0
		for i := range task.WorkerStates {
			if !task.WorkerStates[i].SuccessTime.IsZero() {
				n++
			}
		}
		ok := 0
		for _, r := range results {
			if r.Step == task.Origin.Step && r.State == stepplan.StateOK {
				ok++
			}
		}
		switch {
		case task.Status == model.StatusSuccess:
			succeeded++
			if want := max(x.Options.ConcurrentWorkerCount, 1); n != want || ok < want {
				wrong("step %d has %d successes and %d results, of %d", task.Origin.Step, n, ok, want)
			}
		case p.Status == repeat.StatusCancelled:
		default:
			wrong("step %d is %s", task.Origin.Step, task.Status)
		}
		// A step begins at its time, or when the one before it has ended.
		execs := m.runs[task.ID]
		if len(execs) == 0 {
			if task.Status == model.StatusSuccess {
				wrong("step %d never ran", task.Origin.Step)
			}
			continue
		}
		due := later(planTimeOf(execs[0]), last)
		if execs[0].began.Before(planTimeOf(execs[0])) {
			wrong("step %d began at %v, before %v", task.Origin.Step, execs[0].began, planTimeOf(execs[0]))
		}
		if seen := x.at.Add(5 * time.Second); !execs[0].began.After(seen.Add(m.slack(due))) {
			due = later(due, earlier(seen, execs[0].began)) // an idle engine learns only with its next look of the plan
		}
		late := execs[0].began.Sub(due) - m.away(due, execs[0].began)
		for _, at := range x.resets {
			if !at.Before(due) && !at.After(execs[0].began) { // it was ERROR
				late = 0
			}
		}
		if worst = max(worst, late); late > m.slack(due) {
			wrong("step %d began at %s, %v after %s", task.Origin.Step, execs[0].began.Format("15:04:05.000"), late, due.Format("15:04:05.000"))
		}
		last = task.FinishedAt
	}
	m.note("%s: %s after %d of %d steps, %d skipped, %d tasks, worst %v", x.PlanID, p.Status, p.RealRepet, p.PlanRepet, p.Skipped, len(tasks), worst)
	if p.RealRepet != succeeded {
		wrong("%d steps succeeded, it says %d", succeeded, p.RealRepet)
	}
	steps := int64(x.PlanRepet)
	if x.PlanType == repeat.None || x.PlanType == repeat.Time {
		steps = 1
	}
	if p.Status == repeat.StatusFinish && p.RealRepet+p.Skipped != steps {
		wrong("FINISH after %d and %d skipped of %d steps", p.RealRepet, p.Skipped, steps)
	}
	if p.Status == repeat.StatusFinish {
		// Nobody waits for the last end: engines look for it every five seconds, and any of them after ten.
		if late := p.EndedAt.Sub(last) - m.away(last, p.EndedAt); late > 15*time.Second+m.slack(last) && succeeded > 0 {
			wrong("FINISH at %v, %v late", p.EndedAt, late)
		}
	}
	if x.NoKeep && p.Skipped > 0 {
		wrong("no_keep, and skipped %d", p.Skipped)
	}
	if t.Failed() {
		for _, task := range tasks {
			t.Logf("step %d: %s created %v due %v finished %v, %d runs", task.Origin.Step, task.Status, task.CreatedAt, task.StartTime, task.FinishedAt, len(m.runs[task.ID]))
		}
		t.Fatal("\n" + m.history())
	}
}

func planTimeOf(e *mixRun) time.Time {
	switch at := e.args["plan_time"].(type) {
	case bson.DateTime:
		return at.Time().UTC()
	case time.Time:
		return at
	case string:
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			panic(err)
		}
		return t
	default:
		panic(fmt.Sprintf("%T %v", at, e.args))
	}
}
