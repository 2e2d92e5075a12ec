package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

var now = time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)

// life makes a task by the rules and lets it live: each step sees the time it happens.
type life struct {
	t   *testing.T
	doc *model.Task
}

func begin(t *testing.T, at time.Time, d lifecycle.Draft) *life {
	d.Type, d.Key = "t", "k"
	return &life{t, lifecycle.NewTask(d, at)}
}

func (l *life) eff() lifecycle.Effective { return lifecycle.ResolveOptions(l.doc.Options) }

func (l *life) claim(worker string, at time.Time) *life {
	c, no := lifecycle.Claim(l.doc, lifecycle.Claimant{WorkerID: worker, ExecID: worker + at.String()}, l.eff(), at)
	require.Empty(l.t, no)
	l.doc = c
	return l
}

func (l *life) finish(worker string, claimed time.Time, out lifecycle.Outcome, at time.Time) *life {
	c, err := lifecycle.Finish(l.doc, worker+claimed.String(), out, l.eff(), at, 0.5)
	require.NoError(l.t, err)
	l.doc = c
	return l
}

func (l *life) cancel(at time.Time) *life {
	c, err := lifecycle.Cancel(l.doc, "no longer needed", l.eff(), at)
	require.NoError(l.t, err)
	l.doc = c
	return l
}

func TestExplanations(t *testing.T) {
	w1 := Worker{ID: "w1", Types: []string{"t"}, Concurrency: 10}
	full := Worker{ID: "w1", Types: []string{"t"}, Concurrency: 10, Running: 10}
	other := Worker{ID: "w9", Types: []string{"u"}, Concurrency: 10}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	none := 0
	manual := true
	for name, c := range map[string]struct {
		life  *life
		facts Facts
		want  []string // the report says all of these
	}{
		"due, a worker is free":               {begin(t, now, lifecycle.Draft{}), Facts{Workers: []Worker{w1}}, []string{"has been due since", "within seconds by the worker w1", "w1 may claim it (0 of 10 slots busy)"}},
		"due, no worker at all":               {begin(t, now, lifecycle.Draft{}), Facts{}, []string{"No live worker handles the type t (there is no live worker)"}},
		"due, only other types":               {begin(t, now, lifecycle.Draft{}), Facts{Workers: []Worker{other}}, []string{"(live workers handle u)", "Start a worker that handles t"}},
		"due, its category is only its own":   {begin(t, now, lifecycle.Draft{Category: "media"}), Facts{Workers: []Worker{other}}, []string{"A handler of the category media serves the types with that category in their settings; the type t has another or none", "mscheduler type apply"}},
		"due, its type has its category":      {begin(t, now, lifecycle.Draft{Category: "media"}), Facts{Type: &model.TaskType{Code: "t", Category: "media"}}, []string{"No live worker handles the type t"}},
		"due, everybody is busy":              {begin(t, now, lifecycle.Draft{}), Facts{Workers: []Worker{full}}, []string{"All workers that may claim it were busy", "The first of them with a free slot"}},
		"to expire":                           {begin(t, ago(time.Minute), lifecycle.Draft{Options: model.Options{ExpiresAt: now.Add(time.Hour)}}), Facts{}, []string{"has been due since", "Start a worker", "If no worker has started it by 2026-01-31 10:00:00Z (in 1h), it is cancelled."}},
		"held, to expire":                     {begin(t, ago(time.Minute), lifecycle.Draft{Held: true, Options: model.Options{ExpiresAt: now.Add(time.Hour)}}), Facts{}, []string{"It is held", "If no worker has started it by"}},
		"paused type":                         {begin(t, now, lifecycle.Draft{}), Facts{Workers: []Worker{w1}, PausedType: true}, []string{"paused for the type t", "mscheduler resume t"}},
		"paused all":                          {begin(t, now, lifecycle.Draft{}), Facts{Workers: []Worker{w1}, PausedType: true, PausedAll: true}, []string{"paused for all types", "resume --all"}},
		"not due yet":                         {begin(t, now, lifecycle.Draft{Start: now.Add(time.Hour)}), Facts{Workers: []Worker{w1}}, []string{"waiting for its start time, 2026-01-31 10:00:00Z (in 1h)", "may be claimed by the worker w1", "w1 not now: it is not due yet"}},
		"held":                                {begin(t, now, lifecycle.Draft{Held: true}), Facts{}, []string{"It is held", "task release 't/k'"}},
		"filtered, no worker lives":           {begin(t, now, lifecycle.Draft{Options: model.Options{SpecificWorkerIDs: []string{"w2"}}}), Facts{}, []string{"Only the worker w2 may claim it.", "Start a worker"}},
		"filtered, the worker lives":          {begin(t, now, lifecycle.Draft{Options: model.Options{SpecificWorkerIDs: []string{"w2"}}}), Facts{Workers: []Worker{w1}}, []string{"Only the worker w2 may run it", "No live worker of its type (1)", "only other workers may run it"}},
		"running":                             {begin(t, ago(time.Minute), lifecycle.Draft{}).claim("w1", ago(5*time.Second)), Facts{Workers: []Worker{w1}}, []string{"The worker w1 has been running it since", "its lease runs until 2026-01-31 09:00:25Z (in 25s)", "extends its lease every 10s"}},
		"running, nobody hears it":            {begin(t, ago(time.Minute), lifecycle.Draft{}).claim("w1", ago(5*time.Second)), Facts{}, []string{"w1 (no recent heartbeat) has held it"}},
		"lapsed":                              {begin(t, ago(time.Hour), lifecycle.Draft{}).claim("w2", ago(time.Minute)), Facts{Workers: []Worker{w1}}, []string{"its lease has lapsed", "takes it over, usually within seconds", "w1 may claim it"}},
		"lapsed, and filtered":                {begin(t, ago(time.Hour), lifecycle.Draft{Options: model.Options{SpecificWorkerIDs: []string{"w2"}}}).claim("w2", ago(time.Minute)), Facts{Workers: []Worker{w1}}, []string{"its lease has lapsed", "No live worker of its type (1) may run it: the worker filter excludes them.", "waits until a worker that may run it starts"}},
		"lapsed, and the filtered one drains": {begin(t, ago(time.Hour), lifecycle.Draft{Options: model.Options{SpecificWorkerIDs: []string{"w2"}}}).claim("w2", ago(time.Minute)), Facts{Workers: []Worker{w1, {ID: "w2", Types: []string{"t"}, Draining: true}}}, []string{"None of the live workers of its type (2) may run it now.", "w2 no: it is being drained"}},
		"lapsed, nobody looks":                {begin(t, ago(time.Hour), lifecycle.Draft{}).claim("w2", ago(time.Minute)), Facts{}, []string{"its lease has lapsed", "The next worker of type t that starts takes it over"}},
		"lapsed once too often":               {begin(t, ago(time.Hour), lifecycle.Draft{Options: model.Options{MaxLapses: &none}}).claim("w2", ago(time.Minute)), Facts{Workers: []Worker{w1}}, []string{"Its budget is spent: the next scan of a live worker ends it as Failure"}},
		"lapsed while paused":                 {begin(t, ago(time.Hour), lifecycle.Draft{}).claim("w2", ago(time.Minute)), Facts{Workers: []Worker{w1}, PausedAll: true}, []string{"the task waits until claiming resumes"}},
		"waits for its retry": {begin(t, ago(time.Hour), lifecycle.Draft{Options: model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Minute}}}).
			claim("w1", ago(time.Minute)).finish("w1", ago(time.Minute), lifecycle.Failed(failkind.Error, "it broke"), ago(20*time.Second)), Facts{Workers: []Worker{w1}},
			[]string{"waiting for its retry, due 2026-01-31 09:00:40Z (in 40s)", "error: it broke", "It has used 1 of 10 retries"}},
		"being cancelled":          {begin(t, ago(time.Minute), lifecycle.Draft{}).claim("w1", ago(5*time.Second)).cancel(ago(time.Second)), Facts{Workers: []Worker{w1}}, []string{"Its cancellation was requested at", "Remark: no longer needed", "Its handler's context is cancelled"}},
		"cancelled":                {begin(t, ago(time.Minute), lifecycle.Draft{}).cancel(ago(time.Second)), Facts{}, []string{"It was cancelled at", "To run it anyway"}},
		"succeeded":                {begin(t, ago(time.Minute), lifecycle.Draft{}).claim("w1", ago(5*time.Second)).finish("w1", ago(5*time.Second), lifecycle.Outcome{}, ago(3*time.Second)), Facts{}, []string{"It succeeded at", "w1 completed it on attempt 1, in 2s", "The task and its key are kept until"}},
		"failed for good":          {begin(t, ago(time.Minute), lifecycle.Draft{}).claim("w1", ago(5*time.Second)).finish("w1", ago(5*time.Second), lifecycle.Failed(failkind.Fatal, "useless"), ago(3*time.Second)), Facts{}, []string{"It failed permanently", "The handler returned a fatal error, so it is not retried"}},
		"one error is not several": {begin(t, ago(time.Minute), lifecycle.Draft{Options: model.Options{Retry: &model.Retry{Strategy: model.RetryNone}}}).claim("w1", ago(5*time.Second)).finish("w1", ago(5*time.Second), lifecycle.Failed(failkind.Error, "no"), ago(3*time.Second)), Facts{}, []string{"It had 1 error and 0 lapses."}},
		"a person must decide":     {begin(t, ago(time.Minute), lifecycle.Draft{Options: model.Options{NeedManual: &manual}}).claim("w1", ago(5*time.Second)).finish("w1", ago(5*time.Second), lifecycle.Failed(failkind.Fatal, "useless"), ago(3*time.Second)), Facts{}, []string{"An operator must decide", "task resolve 't/k'"}},
		"two wanted, one at it": {begin(t, ago(time.Minute), lifecycle.Draft{Options: model.Options{ConcurrentWorkerCount: 2}}).claim("w1", ago(5*time.Second)), Facts{Workers: []Worker{w1}},
			[]string{"It needs 2 workers; running it: 1, succeeded: 0.", "2 different workers have succeeded", "w1 not now: this worker holds it or has succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.Task, c.facts.Now = c.life.doc, now
			r := Explain(c.facts)
			var b strings.Builder
			b.WriteString(r.Summary + "\n" + strings.Join(r.Because, "\n") + "\n" + strings.Join(r.Next, "\n") + "\n")
			for _, w := range r.Workers {
				b.WriteString(w.ID + " " + w.Words + "\n")
			}
			for _, want := range c.want {
				require.Contains(t, b.String(), want)
			}
			require.NotContains(t, b.String(), "derived fields", "what the rules made contradicts itself")
		})
	}
}

func TestAWorkerThatANewLimitReadmitsMayClaim(t *testing.T) {
	claimed := now.Add(-time.Minute)
	one := begin(t, claimed, lifecycle.Draft{Options: model.Options{MaxErrorsPerWorker: 1}}).claim("w1", claimed)
	updated, err := lifecycle.Update(one.doc, lifecycle.Patch{Options: new(model.Options{MaxErrorsPerWorker: 2})}, model.Options{}, claimed)
	require.NoError(t, err)
	one.doc = updated
	one.finish("w1", claimed, lifecycle.Failed(failkind.Error, "it broke"), now.Add(-30*time.Second))
	r := Explain(Facts{Task: one.doc, Now: now, Workers: []Worker{{ID: "w1", Types: []string{"t"}, Concurrency: 10}}})
	require.Equal(t, []WorkerVerdict{{ID: "w1", May: true, Words: "may claim it (0 of 10 slots busy)"}}, r.Workers)
}

func TestATaskThatExpiredWaitsForTheSweepAlone(t *testing.T) {
	expires := model.Options{ExpiresAt: now.Add(-time.Second)}
	for name, d := range map[string]lifecycle.Draft{
		"due":         {Options: expires},
		"not due yet": {Options: expires, Start: now.Add(time.Hour)},
		"held":        {Options: expires, Held: true},
	} {
		r := Explain(Facts{Task: begin(t, now.Add(-time.Minute), d).doc, Now: now, Workers: []Worker{{ID: "w1", Types: []string{"t"}, Concurrency: 10}}})
		require.Equal(t, Report{
			Summary: "It expired at 2026-01-31 08:59:59Z (1s ago) before a worker started it. The fleet cancels it within about a minute.",
			Because: []string{}, Next: []string{}, Workers: []WorkerVerdict{},
		}, r, name)
	}
	alone := Explain(Facts{Task: begin(t, now.Add(-time.Minute), lifecycle.Draft{Options: expires}).doc, Now: now})
	require.Equal(t, []string{"There is no live worker to cancel it: start one, of any type."}, alone.Next)
}

func TestParkedExecutionIsExplained(t *testing.T) {
	l := begin(t, now, lifecycle.Draft{}).claim("w1", now)
	parked, err := lifecycle.Park(l.doc, "w1"+now.String(), now.Add(time.Hour), lifecycle.Outcome{}, l.eff(), now)
	require.NoError(t, err)
	r := Explain(Facts{Task: parked, Now: now})
	require.Contains(t, r.Summary, "it waits for a completion until 2026-01-31 10:00:00Z")
}

func TestDocumentThatContradictsItselfIsNamed(t *testing.T) {
	l := begin(t, now, lifecycle.Draft{})
	l.doc.DueAt = time.Time{}
	r := Explain(Facts{Task: l.doc, Now: now})
	require.Contains(t, strings.Join(r.Because, "\n"), "Its derived fields contradict its executions")
}

func TestStatusOfALaterReleaseIsLeftAlone(t *testing.T) {
	l := begin(t, now, lifecycle.Draft{})
	l.doc.Status = "Frozen"
	require.Contains(t, Explain(Facts{Task: l.doc, Now: now}).Summary, "does not know its status")
}
