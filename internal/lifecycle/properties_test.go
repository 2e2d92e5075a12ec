package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// life is one task under random rules by several workers with a moving clock. Every
// step checks what holds for every rule: the input is not changed, rev and generation
// rise, the diff says exactly what happened, the state is consistent.
type life struct {
	*rapid.T
	task    *model.Task
	now     time.Time
	claims  int
	fenced  []string // exec ids that ended: nothing they say may count again
	widest  int      // the most workers this life ever wanted
	budget  int      // and the greatest max_errors
	failed  failures // of this life
	trail   []string
	options model.Options
}

var lifeSteps = []string{"a", "b", "c"}

var lifeWorkers = []string{"w1", "w2", "w3", "w4"}

func (l *life) eff() Effective { return ResolveOptions(l.task.Options) }

func (l *life) worker() string { return rapid.SampledFrom(lifeWorkers).Draw(l.T, "worker") }

func (l *life) ok(err error) {
	if err != nil {
		l.Fatalf("%v\nafter %v", err, l.trail)
	}
}

// did takes over what a rule made of the task.
func (l *life) did(rule string, snapshot, after *model.Task) {
	before := l.task
	l.trail = append(l.trail, rule)
	require.Equal(l, snapshot, before, "%s changed its input", rule)
	if after == nil || after == before {
		return
	}
	l.ok(ruleFault(before, after))
	l.ok(eventFault(before, after))
	for i := range before.WorkerStates {
		if w := &before.WorkerStates[i]; Open(w) {
			if _, now := ExecutionOf(after, w.ExecID); now == nil || !Open(now) {
				l.fenced = append(l.fenced, w.ExecID)
			}
		}
	}
	l.task = after
	l.ok(stateFault(l.task, l.eff(), l.now))
	l.budgets(before)
	if after.Generation == before.Generation && !slices.EqualFunc(before.Steps, after.Steps, sameStep) {
		cleaned := rule == "send again" && cleanedIn(after) > cleanedIn(before) // with what single workers did
		require.True(l, cleaned || strings.HasPrefix(rule, "retry from"), "%s changed the steps of a life", rule)
	}
}

// cleanedIn counts the executions whose end a send has reset.
func cleanedIn(t *model.Task) (n int) {
	for i := range t.WorkerStates {
		if t.WorkerStates[i].FailKind == failkind.Cleaned {
			n++
		}
	}
	return n
}

func sameStep(a, b model.Step) bool { return a.Name == b.Name && a.WorkerID == b.WorkerID }

// budgets checks that the counters say what ended in this life and was not reset, and that at most one error of each
// wanted worker is over the budget.
func (l *life) budgets(before *model.Task) {
	t, eff := l.task, l.eff()
	if t.Generation != before.Generation {
		require.Zero(l, t.ErrorCount+t.LapseCount, "a new life has a fresh budget")
		l.widest, l.budget, l.failed = 0, 0, failures{}
		return
	}
	l.failed.wrote(before, t)
	require.Equal(l, failed{t.ErrorCount, t.LapseCount}, l.failed.count(), "counted after %v", l.trail)
	if OpenExecutions(t) > OpenExecutions(before) { // claimed
		until := judged(before, eff) // options that changed while it ran hold from this claim on
		if before.ErrorCount > *until.Retry.MaxErrors || before.LapseCount > until.MaxLapses {
			l.Fatalf("claimed beyond its budget after %v", l.trail)
		}
	}
	l.widest, l.budget = max(l.widest, Wanted(t)), max(l.budget, *eff.Retry.MaxErrors)
	if t.ErrorCount > l.budget+l.widest {
		l.Fatalf("%d errors with a budget of %d and %d workers", t.ErrorCount, l.budget, l.widest)
	}
}

func drawOptions(t *rapid.T) model.Options {
	o := model.Options{
		ConcurrentWorkerCount: rapid.IntRange(0, 3).Draw(t, "n"),
		WorkerTimeout:         time.Duration(rapid.IntRange(1000, 60_000).Draw(t, "lease")) * time.Millisecond,
		MaxLapses:             new(rapid.IntRange(0, 4).Draw(t, "max lapses")),
		MaxErrorsPerWorker:    rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "per worker"),
		Retry: &model.Retry{
			Strategy:  rapid.SampledFrom([]model.RetryStrategy{"", model.RetryFixed, model.RetryExponential}).Draw(t, "strategy"),
			Interval:  rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "interval"),
			MaxErrors: new(rapid.IntRange(0, 12).Draw(t, "max errors")),
		},
	}
	if rapid.Bool().Draw(t, "retention?") {
		o.Retention = time.Duration(rapid.IntRange(1, 100_000).Draw(t, "retention")) * time.Millisecond
	}
	if rapid.Bool().Draw(t, "manual?") {
		o.NeedManual = new(rapid.Bool().Draw(t, "manual"))
	}
	if rapid.IntRange(0, 2).Draw(t, "deadline?") == 0 {
		o.ExecutionTimeout = time.Duration(rapid.IntRange(1, 100_000).Draw(t, "deadline")) * time.Millisecond
	}
	if rapid.IntRange(0, 3).Draw(t, "filter?") == 0 {
		o.SpecificWorkerIDs = rapid.SliceOfNDistinct(rapid.SampledFrom(lifeWorkers), max(o.ConcurrentWorkerCount, 1), 4, rapid.ID).Draw(t, "workers")
	}
	return o
}

func drawValue(t *rapid.T) bson.RawValue {
	v, err := codec.EncodeJSON("v", []byte(rapid.SampledFrom([]string{"", "1", `"x"`, `{"a":[1,{"b":null}]}`}).Draw(t, "value")), input.MaxArgsBytes)
	require.NoError(t, err)
	return v
}

func drawDraft(l *life) Draft {
	d := Draft{Type: "t", Key: "k", Options: l.options, Args: drawValue(l.T), Held: rapid.IntRange(0, 4).Draw(l.T, "held") == 0}
	if rapid.Bool().Draw(l.T, "start?") {
		d.Start = l.now.Add(time.Duration(rapid.IntRange(-60_000, 60_000).Draw(l.T, "start")) * time.Millisecond)
	}
	if rapid.Bool().Draw(l.T, "options?") {
		d.Options = drawOptions(l.T)
	}
	require.NoError(l, d.Validate())
	return d
}

func (l *life) outcome() Outcome {
	switch k := rapid.IntRange(0, 9).Draw(l.T, "outcome"); k {
	case 0, 1, 2:
		return Success(drawValue(l.T))
	case 3:
		return Failed(failkind.Released, "r")
	case 4:
		return Failed(failkind.Released, "s").After(time.Duration(rapid.IntRange(-5, 90_000).Draw(l.T, "snooze")) * time.Millisecond)
	case 5:
		if rapid.IntRange(0, 3).Draw(l.T, "really") > 0 {
			return Failed(failkind.Error, "e")
		}
		return Outcome{Kind: failkind.Cancelled, CancelTask: true, Reason: "c"}
	case 6:
		if rapid.IntRange(0, 3).Draw(l.T, "really") > 0 {
			return Failed(failkind.Panic, "p")
		}
		return Failed(failkind.Fatal, "f")
	case 7:
		return Undecodable(l.task, "u", time.Hour, l.now)
	default:
		return Failed(failkind.Error, "e")
	}
}

func (l *life) random() float64 { return rapid.Float64Range(0, 0.999).Draw(l.T, "random") }

func (l *life) openExec(t *model.Task, w string) string {
	for i := range t.WorkerStates {
		if st := &t.WorkerStates[i]; st.WorkerID == w && Open(st) {
			return st.ExecID
		}
	}
	return ""
}

func (l *life) claim() {
	w, snapshot := l.worker(), deepCopy(l.task)
	l.claims++
	no := Claimable(l.task, w, l.eff(), l.now)
	after, refused := Claim(l.task, Claimant{WorkerID: w, ExecID: fmt.Sprintf("%s.%d", w, l.claims)}, l.eff(), l.now)
	require.Equal(l, no, refused)
	require.Equal(l, no == "", after != nil, "claimable exactly when the claim succeeds")
	before := l.task
	l.did("claim "+w, snapshot, after)
	if after == nil {
		return
	}
	_, st := ExecutionOf(after, fmt.Sprintf("%s.%d", w, l.claims))
	require.NotNil(l, st)
	require.True(l, Open(st))
	require.Greater(l, model.Token{Generation: after.Generation, Rev: after.Rev}.String(), model.Token{Generation: before.Generation, Rev: before.Rev}.String())
	require.False(l, before.StartTime.After(l.now), "started before its time")
	for i := range before.WorkerStates {
		if o := &before.WorkerStates[i]; o.WorkerID == w {
			require.False(l, o.RetryAt.After(l.now), "claimed before its retry was due")
		}
	}
}

func (l *life) finish() {
	w, snapshot := l.worker(), deepCopy(l.task)
	exec := l.openExec(l.task, w)
	if exec == "" {
		return
	}
	out := l.outcome()
	_, open := ExecutionOf(l.task, exec)
	after, err := Finish(l.task, exec, out, l.eff(), l.now, l.random())
	if open.Parked && !open.PingExpireTime.After(l.now) {
		var late *LateError
		require.ErrorAs(l, err, &late)
		require.ErrorIs(l, err, model.ErrFenced)
		require.Nil(l, after)
		l.did("finish too late "+w, snapshot, after)
		return
	}
	l.ok(err)
	_, st := ExecutionOf(after, exec)
	require.False(l, Open(st))
	require.Equal(l, out.Kind == "", !st.SuccessTime.IsZero())
	if out.Kind == "" && after.Status == model.StatusSuccess {
		require.Equal(l, out.Result, after.Result, "the result of the execution that completed it")
	}
	l.did(fmt.Sprintf("finish %s %q", w, out.Kind), snapshot, after)
}

// late is what a frozen worker does when it comes back.
func (l *life) late() {
	if len(l.fenced) == 0 {
		return
	}
	exec, snapshot := rapid.SampledFrom(l.fenced).Draw(l.T, "late"), deepCopy(l.task)
	after, err := Finish(l.task, exec, l.outcome(), l.eff(), l.now, 0)
	require.ErrorIs(l, err, model.ErrFenced)
	require.Nil(l, after)
	after, err = Park(l.task, exec, l.now.Add(time.Hour), Outcome{}, l.eff(), l.now)
	require.ErrorIs(l, err, model.ErrFenced)
	l.did("late", snapshot, after)
}

func (l *life) actions() map[string]func(*rapid.T) {
	rule := func(name string, f func() (*model.Task, error)) func(*rapid.T) {
		return func(*rapid.T) {
			snapshot := deepCopy(l.task)
			after, err := f()
			if err != nil {
				require.ErrorAs(l, err, new(*model.RefusedError))
				require.Nil(l, after)
			}
			l.did(name, snapshot, after)
		}
	}
	return map[string]func(*rapid.T){
		"advance": func(*rapid.T) {
			l.now = l.now.Add(time.Duration(rapid.SampledFrom([]int{1, 500, 5_000, 31_000, 100_000, 4_000_000}).Draw(l.T, "ms")) * time.Millisecond)
			l.trail = append(l.trail, "at "+l.now.Sub(epoch).String())
		},
		"claim": func(*rapid.T) { l.claim() }, "claim again": func(*rapid.T) { l.claim() }, "claim more": func(*rapid.T) { l.claim() },
		"finish": func(*rapid.T) { l.finish() }, "finish again": func(*rapid.T) { l.finish() },
		"late": func(*rapid.T) { l.late() },
		"ping": func(*rapid.T) {
			w := l.worker()
			if exec := l.openExec(l.task, w); exec != "" {
				after, err := ping(l.task, exec, l.eff().Lease, l.now)
				l.ok(err)
				l.task = after // no rule: rev stays, and with several workers lapse_at may be early
				l.trail = append(l.trail, "ping "+w)
			}
		},
		"park": func(*rapid.T) {
			if exec := l.openExec(l.task, l.worker()); exec != "" {
				until := l.now.Add(time.Duration(rapid.IntRange(1, 200_000).Draw(l.T, "park")) * time.Millisecond)
				rule("park", func() (*model.Task, error) {
					return Park(l.task, exec, until, Outcome{NoCallback: true}, l.eff(), l.now)
				})(l.T)
			}
		},
		"checkpoint": func(*rapid.T) {
			w := l.worker()
			if exec := l.openExec(l.task, w); exec != "" { // what the store writes without a rule
				c := deepCopy(l.task)
				c.Progress = &model.Progress{Percent: 50, At: l.now}
				if _, st := ExecutionOf(c, exec); Wanted(c) > 1 {
					st.Checkpoint = drawValue(l.T)
				} else {
					c.Checkpoint = drawValue(l.T)
				}
				l.task = c
			}
		},
		"local retry": func(*rapid.T) {
			if exec := l.openExec(l.task, l.worker()); exec != "" {
				c := deepCopy(l.task)
				_, st := ExecutionOf(c, exec)
				st.LocalRetries++
				l.task = c
			}
		},
		"step": func(*rapid.T) {
			if exec := l.openExec(l.task, l.worker()); exec != "" {
				after, err := saveStep(l.task, exec, rapid.SampledFrom(lifeSteps).Draw(l.T, "step"), l.now)
				l.ok(err)
				l.task = after
			}
		},
		"retry from": func(*rapid.T) {
			name, before := rapid.SampledFrom(lifeSteps).Draw(l.T, "from"), l.task
			rule("retry from "+name, func() (*model.Task, error) { return RetryFrom(l.task, name, "go", l.eff(), l.now) })(l.T)
			if l.task == before {
				return
			}
			require.Less(l, len(l.task.Steps), len(before.Steps))
			for _, w := range lifeWorkers {
				for i, s := range StepsOf(l.task, w) {
					require.NotEqual(l, name, s.Name)
					require.True(l, sameStep(s, StepsOf(before, w)[i]), "what stays is the beginning")
				}
			}
		},
		"expire": rule("expire", func() (*model.Task, error) { return Expire(l.task, l.eff(), l.now, l.random()), nil }),
		"cancel": func(*rapid.T) {
			if rapid.IntRange(0, 3).Draw(l.T, "really") == 0 {
				rule("cancel", func() (*model.Task, error) { return Cancel(l.task, "no", l.eff(), l.now) })(l.T)
			}
		},
		"retry":   rule("retry", func() (*model.Task, error) { return RetryNow(l.task, "go", l.eff(), l.now) }),
		"resolve": rule("resolve", func() (*model.Task, error) { return Resolve(l.task, "did it", l.eff(), l.now) }),
		"release": rule("release", func() (*model.Task, error) { return Release(l.task, l.eff(), l.now) }),
		"update": rule("update", func() (*model.Task, error) {
			d := drawDraft(l)
			p := Patch{Args: &d.Args, Priority: new(rapid.IntRange(0, 9).Draw(l.T, "priority"))}
			if !d.Start.IsZero() {
				p.Start = &d.Start
			}
			if rapid.Bool().Draw(l.T, "new options?") {
				p.Options = &d.Options
			}
			return Update(l.task, p, model.Options{}, l.now)
		}),
		"send again": rule("send again", func() (*model.Task, error) {
			return SendAgain(l.task, drawDraft(l), model.Existing(rapid.Uint8Range(0, 31).Draw(l.T, "policy")), l.now)
		}),
		"repair": func(*rapid.T) {
			c := Repair(l.task, l.eff(), l.now)
			if c != nil && c.LapseAt.After(l.task.LapseAt) { // early by a ping
				l.did("repair lapse_at", deepCopy(l.task), c)
				c = Repair(c, l.eff(), l.now)
			}
			require.Nil(l, c, "what a rule left needs no repair, after %v", l.trail)
		},
	}
}
