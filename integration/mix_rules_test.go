package integration

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// mixedRule is a rule of a mix, with the ticks that it must have.
type mixedRule struct {
	*schedule.Rule
	spec   schedule.Spec
	from   time.Time
	wants  map[int64]bool
	edited []time.Time
	woken  []time.Time // an idle engine learns only with its next look that it fires, or that it has runs
}

func (m *mix) ruleSpec(name string) schedule.Spec {
	r := m.r
	errs := r.IntN(2)
	s := schedule.Spec{
		Name: name, Type: oneOf(r, "quick", "slow", "flaky", "park"),
		Cron:           oneOf(r, "* * * * * *", "*/3 * * * * *", "*/10 * * * * *", "*/7 * * * * *", "0 * * * * *", "@every 4s", "@every 11s", "5,6,30 * * * * *"),
		Category:       oneOf(r, "", "c"),
		Overlap:        oneOf(r, "", schedule.OverlapSkip, schedule.OverlapCancelPrev, schedule.OverlapParallel),
		OnFailure:      oneOf(r, "", schedule.FailureSkip, schedule.FailureRetry),
		Concurrency:    oneOf(r, "", schedule.ConcurrencySkip, schedule.ConcurrencyParallel),
		MaxConcurrency: r.IntN(4), QueueLimit: 1 + r.IntN(6),
		CatchUp: schedule.CatchUp{Mode: oneOf(r, "", schedule.CatchUpCompact, schedule.CatchUpFull), Window: time.Duration(r.IntN(2)*(1+r.IntN(60))) * time.Second, Cap: r.IntN(20)},
		Options: model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Second, MaxErrors: &errs}},
	}
	if r.IntN(4) == 0 {
		s.Jitter = m.upTo(5 * time.Second)
	}
	if r.IntN(4) == 0 {
		s.Options.ExecutionTimeout = time.Second + m.upTo(4*time.Second)
	}
	return s
}

// keyed is a number that follows from a text.
func keyed(of ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, of...)
	return rand.New(rand.NewPCG(h.Sum64(), 0)) //nolint:gosec // a test
}

func (m *mix) handleTick(ctx context.Context, e *mixRun) (string, error) {
	r := keyed(e.TaskID, e.Attempt)
	span := 500 * time.Millisecond
	if e.Type == "slow" || e.Type == "flaky" {
		span = 6 * time.Second
	}
	if e.Type == "park" {
		span = 200 * time.Millisecond
	}
	if r.IntN(20) == 0 {
		span = 20 * time.Second
	}
	select {
	case <-time.After(time.Duration(r.Int64N(int64(span)))):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch {
	case e.Type == "flaky" && r.IntN(2) == 0:
		return "", errors.New("flaky")
	case e.Type == "park" && r.IntN(8) > 0:
		wait, handle, fails := time.Duration(r.Int64N(int64(7*time.Second))), e.Handle, r.IntN(4) == 0
		go func() {
			time.Sleep(wait)
			if fails {
				_, _ = m.prod.Fail(context.Background(), handle, "no", producer.Failure{})
			} else {
				_, _ = m.prod.Complete(context.Background(), handle, "yes")
			}
		}()
		return "", consumer.Park(e.Now().Add(5 * time.Second))
	}
	return "", nil
}

func (x *mixedRule) want(t *testing.T, to time.Time) {
	start := x.StartAt
	if start.IsZero() {
		start = x.CreatedAt
	}
	cal, err := calendar.Parse(calendar.Spec{Cron: x.Cron, Timezone: x.Timezone, Start: start})
	require.NoError(t, err)
	x.from = later(x.from, start.Add(-1))
	for at := range cal.Ticks(x.from) {
		if at.At.After(to) || !x.EndAt.IsZero() && !at.At.Before(x.EndAt) {
			break
		}
		if at.Fires {
			x.wants[at.At.Unix()] = true
		}
	}
	x.from = later(x.from, to)
}

func TestRulesOfAMixFireInTime(t *testing.T) {
	for seed := range testdb.Mixes(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playMix(t, seed, 2, mixRules) })
	}
}

func mixRules(m *mix) {
	t, ctx := m.t, m.t.Context()
	m.handle = m.handleTick
	m.hires(1+m.r.IntN(2), "quick", "slow", "flaky", "park")
	for range 1 + m.r.IntN(3) {
		m.begins()
	}
	time.Sleep(m.upTo(time.Second))
	var rules []*mixedRule
	for i := range 1 + m.r.IntN(4) {
		s := m.ruleSpec(fmt.Sprint("rule", i))
		switch m.r.IntN(5) {
		case 0:
			s.EndAt = time.Now().Add(61*time.Second + m.upTo(time.Minute))
		case 1:
			s.MaxRuns = int64(1 + m.r.IntN(20))
		case 2:
			s.StartAt = time.Now().Add(m.upTo(time.Minute)).Truncate(time.Second)
		}
		r, err := m.rules.Create(ctx, s)
		require.NoError(t, err)
		r, err = m.rules.Enable(ctx, r.ID, r.Version)
		require.NoError(t, err)
		m.note("%s: %+v", s.Name, s)
		rules = append(rules, &mixedRule{Rule: r, spec: s, from: r.DecidedTo, wants: map[int64]bool{}, woken: []time.Time{time.Now()}})
	}
	requests := 0
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(m.upTo(12 * time.Second)) {
		x := rules[m.r.IntN(len(rules))]
		x.woken = append(x.woken, time.Now())
		switch what := m.r.IntN(12); what {
		case 0, 1:
			if len(m.engines) > 0 {
				m.ends(what == 1)
			}
		case 2, 3:
			if len(m.engines) < 3 {
				m.begins()
			}
		case 4:
			_, err := m.rules.Disable(ctx, x.ID, 0, "")
			require.NoError(t, err)
			m.note("%s disabled", x.Name)
		case 5, 6:
			for _, x := range rules {
				x.woken = append(x.woken, time.Now())
				if _, err := m.rules.Enable(ctx, x.ID, 0); err != nil {
					m.note("%s cannot be enabled: %v", x.Name, err)
				}
			}
			m.note("all enabled")
		case 7:
			if !x.spec.EndAt.IsZero() || x.spec.MaxRuns > 0 || !x.spec.StartAt.IsZero() {
				continue
			}
			s := m.ruleSpec(x.Name)
			old, err := m.rules.Get(ctx, x.ID)
			require.NoError(t, err)
			after, err := m.rules.Update(ctx, x.ID, old.Version, s)
			require.NoError(t, err)
			x.want(t, after.DecidedTo)
			x.Rule, x.spec = after, s
			x.edited = append(x.edited, time.Now())
			m.note("%s edited: %+v", x.Name, s)
		case 8:
			requests++
			_, err := m.rules.Trigger(ctx, x.ID, periodic.TriggerOptions{Request: fmt.Sprint("t", requests), Force: m.of(0.3)})
			require.NoError(t, err)
			m.note("%s triggered", x.Name)
		case 9:
			requests++
			n, err := m.rules.Backfill(ctx, x.ID, time.Now().Add(-20*time.Second), time.Now().Add(-15*time.Second), fmt.Sprint("b", requests))
			m.note("%s backfilled: %d, %v", x.Name, n, err)
		case 10:
			r, err := m.rules.Get(ctx, x.ID)
			require.NoError(t, err)
			if refs := append(r.Active, r.Queued...); len(refs) > 0 {
				id := refs[m.r.IntN(len(refs))].ID
				m.note("%s cancelled: %v", id, m.rules.Cancel(ctx, id))
			}
		}
	}
	if len(m.engines) == 0 {
		m.begins()
	}
	time.Sleep(12 * time.Second)
	for _, x := range rules {
		_, err := m.rules.Disable(ctx, x.ID, 0, "")
		require.NoError(t, err)
	}
	m.note("the end")
	for _, x := range rules {
		m.until(20*time.Minute, x.Name+" comes to rest", func() bool {
			r, err := m.rules.Get(ctx, x.ID)
			require.NoError(t, err)
			return len(r.Active) == 0 && len(r.Queued) == 0 && len(r.Planned) == 0
		})
	}
	for _, x := range rules {
		m.checkRule(x)
	}
	m.idles()
	if testing.Verbose() {
		t.Log("\n" + m.history())
	}
}

func (m *mix) checkRule(x *mixedRule) {
	t, ctx := m.t, m.t.Context()
	wrong := func(format string, args ...any) {
		t.Errorf("%s: %s", x.Name, fmt.Sprintf(format, args...))
	}
	r, err := m.rules.Get(ctx, x.ID)
	require.NoError(t, err)
	x.Rule = r
	x.want(t, r.DecidedTo)
	runs, err := m.rules.Runs(ctx, x.ID, periodic.RunFilter{}, nil, 1000)
	require.NoError(t, err)
	require.Less(t, len(runs), 1000)
	cur, err := m.db.Collection("tasks").Find(ctx, bson.D{{Key: "origin.id", Value: x.ID}})
	require.NoError(t, err)
	tasks := map[string]*model.Task{}
	for cur.Next(ctx) {
		var task model.Task
		require.NoError(t, bson.Unmarshal(cur.Current, &task))
		tasks[task.ID] = &task
	}
	covered, counted, sent := map[int64]int{}, int64(0), 0
	var worst, begin time.Duration
	for _, run := range runs {
		if run.TaskID != "" {
			sent++
			task := tasks[run.TaskID]
			if task == nil {
				wrong("%s has no task", run.ID)
				continue
			}
			if !lifecycle.Archivable(task.Status) {
				wrong("%s is %s", task.ID, task.Status)
			}
			if execs := m.runs[run.TaskID]; len(execs) > 0 {
				late := execs[0].began.Sub(later(run.StartedAt, task.StartTime))
				begin = max(begin, late)
				if late > time.Second {
					wrong("%s began %v late", run.ID, late)
				}
			} else if task.Status != model.StatusCancelled {
				wrong("%s never began: %s", run.ID, task.Status)
			}
		}
		switch run.Status { //nolint:exhaustive // the others are over
		case schedule.RunScheduled, schedule.RunQueued, schedule.RunRunning, schedule.RunWaiting:
			wrong("%s stays %s", run.ID, run.Status)
		}
		if run.Manual {
			continue
		}
		skipped := run.Status == schedule.RunSkipped
		if skipped && run.Count > 1 {
			for at := range x.wants {
				if at >= run.Nominal.Unix() && at <= run.Last.Unix() {
					covered[at]++
				}
			}
		} else {
			covered[run.Nominal.Unix()]++
		}
		if skipped && (run.Reason == "missed" || run.Reason == "edited") && m.away(run.Nominal, run.At) < 8*time.Second {
			wrong("%s ×%d to %v is %s at %v", run.ID, run.Count, run.Last, run.Reason, run.At)
		}
		if !skipped || run.Count == 0 {
			counted++
			if run.StartedAt.IsZero() || slices.ContainsFunc(x.edited, func(at time.Time) bool { return at.After(run.Nominal) && !at.After(run.StartedAt) }) {
				continue
			}
			// It starts in time, or once another run of the rule has ended.
			since := run.Nominal
			for _, task := range tasks {
				if at := task.FinishedAt; at.After(since) && !at.After(run.StartedAt) {
					since = at
				}
			}
			for _, at := range x.woken {
				if seen := at.Add(5 * time.Second); !at.After(run.StartedAt) && seen.After(since) {
					since = seen
				}
			}
			late := run.StartedAt.Sub(since) - m.away(since, run.StartedAt)
			if worst = max(worst, late); late > m.slack(run.StartedAt) {
				wrong("%s started at %v, %v late", run.ID, run.StartedAt.Format(time.TimeOnly), late)
			}
		}
	}
	m.note("%s: %d runs, worst %v, began %v late", x.Name, len(runs), worst, begin)
	for at := range x.wants {
		if r.MaxRuns > 0 && r.Runs == r.MaxRuns && covered[at] == 0 {
			continue // it was finished
		}
		if covered[at] != 1 {
			wrong("the tick of %v has %d records", time.Unix(at, 0).UTC(), covered[at])
		}
	}
	for at := range covered {
		if !x.wants[at] {
			wrong("%v is no tick", time.Unix(at, 0).UTC())
		}
	}
	if counted != r.Runs {
		wrong("%d runs, and says %d", counted, r.Runs)
	}
	if r.MaxRuns > 0 && r.Runs > r.MaxRuns {
		wrong("%d runs of at most %d", r.Runs, r.MaxRuns)
	}
	if len(tasks) != sent {
		wrong("%d tasks of %d runs", len(tasks), sent)
	}
	if t.Failed() {
		for _, run := range runs {
			t.Logf("%+v", *run)
		}
		t.Fatal("\n" + m.history())
	}
}
