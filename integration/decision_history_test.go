package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// decisions are those about documents of one kind: rules that tick, or flows that advance.
type decisions[D any] struct {
	rev func(D) int64
	// rules are the pure rules. n chooses among the runs or nodes of the document; false = nothing changes.
	rules map[string]func(doc D, n int, at time.Time) (D, bool)
	// matters is what is compared of a document, beside its rev.
	matters func(D) string
	mark    func(D, string) // of a decision, see the planners
}

// decisionOp is what a client does to a document: it reads it, or writes what a rule made of the rev that it had read.
type decisionOp[D any] struct {
	id, kind string
	begins   D // of the first op about a document
	rev      int64
	n        int
	at       time.Time
	was      string // what was read; of a decision: applied, crossed or unknown
}

const (
	opBegins = "begins"
	opRead   = "read"
)

// model is a document about which one decision is made after the other, each by the pure rule, from what the one
// before it left.
func (g decisions[D]) model() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{nil} },
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			of := map[string][]porcupine.Operation{}
			for _, o := range history {
				id := o.Input.(decisionOp[D]).id //nolint:forcetypeassert // only these are recorded
				of[id] = append(of[id], o)
			}
			return slices.Collect(maps.Values(of))
		},
		Step: func(state, input, _ any) []any {
			o := input.(decisionOp[D]) //nolint:forcetypeassert // as above
			if state == nil || o.kind == opBegins {
				if state == nil && o.kind == opBegins {
					return []any{o.begins}
				}
				return nil
			}
			doc := state.(D) //nolint:forcetypeassert // as above
			if o.kind == opRead {
				if g.seen(doc) == o.was {
					return []any{state}
				}
				return nil
			}
			if g.rev(doc) != o.rev {
				if o.was == "applied" {
					return nil
				}
				return []any{state}
			}
			after, changes := g.rules[o.kind](doc, o.n, o.at)
			switch {
			case !changes, o.was == "crossed": // nobody came between
				return nil
			case o.was == "unknown":
				return []any{state, after}
			default:
				return []any{after}
			}
		},
		Equal: func(a, b any) bool {
			if a == nil || b == nil {
				return a == b
			}
			return g.seen(a.(D)) == g.seen(b.(D)) //nolint:forcetypeassert // as above
		},
	}).ToModel()
}

func (g decisions[D]) seen(doc D) string { return fmt.Sprint(g.rev(doc), " ", g.matters(doc)) }

// decidedFrom is when the decisions begin. It is to come, or the server would delete what has been over for long.
var decidedFrom = time.Date(2100, 1, 1, 12, 0, 0, 0, time.UTC)

// decided is the store of the documents.
type decided[D any] interface {
	ByIDs(ctx context.Context, ids []string) (map[string]D, error)
	Write(ctx context.Context, writes []store.Decision[D]) (applied []bool, refused map[int]error, err error)
	ID(doc D) string
}

// check has six clients decide about the documents at once, and checks their history.
func (g decisions[D]) check(t *testing.T, stored decided[D], docs []D, turns int) {
	t.Helper()
	var ids []string
	var history []porcupine.Operation
	for _, doc := range docs {
		ids = append(ids, stored.ID(doc))
		history = append(history, porcupine.Operation{Input: decisionOp[D]{id: stored.ID(doc), kind: opBegins, begins: doc}, Call: -2, Return: -1})
	}
	var mu sync.Mutex
	counts := map[string]int{}
	record := func(client int, o decisionOp[D], call time.Duration) {
		back := clock.System().Monotonic()
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: o, Call: int64(call), Return: int64(back)})
		if o.kind != opRead {
			counts[o.kind+" "+o.was]++
		}
	}
	kinds := slices.Sorted(maps.Keys(g.rules))
	var seconds atomic.Int64
	var wg sync.WaitGroup
	for client := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(client), 5))
			for range turns {
				id := ids[r.IntN(len(ids))]
				call := clock.System().Monotonic()
				found, err := stored.ByIDs(t.Context(), []string{id})
				if err != nil {
					t.Error(err)
					return
				}
				doc := found[id]
				record(client, decisionOp[D]{id: id, kind: opRead, was: g.seen(doc)}, call)
				o := decisionOp[D]{id: id, kind: kinds[r.IntN(len(kinds))], rev: g.rev(doc), n: r.IntN(1000), at: decidedFrom.Add(time.Duration(seconds.Add(1)) * time.Second)}
				after, changes := g.rules[o.kind](doc, o.n, o.at)
				if !changes {
					continue
				}
				g.mark(after, fmt.Sprint(client, "-", o.at.Unix()))
				call = clock.System().Monotonic()
				applied, refused, err := stored.Write(t.Context(), []store.Decision[D]{{Before: doc, After: after}})
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case applied[0]:
					o.was = "applied"
				case errors.Is(refused[0], store.ErrHeld): // as on a busy machine
					o.was = "unknown"
				default:
					o.was = "crossed"
				}
				record(client, o, call)
			}
		})
	}
	wg.Wait()
	t.Log(counts)
	crossed := 0
	for _, kind := range kinds {
		require.Positive(t, counts[kind+" applied"], "the history has none: %s", kind)
		crossed += counts[kind+" crossed"]
	}
	require.Positive(t, crossed, "nobody was crossed")
	m := g.model()
	for _, ops := range m.Partition(history) {
		if !porcupine.CheckOperations(m, ops) {
			slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
			for _, o := range ops {
				t.Logf("%9d to %9d µs: %+v", o.Call/1000, o.Return/1000, o.Input)
			}
			require.Fail(t, "the decisions are not those of the rules, one after the other")
		}
	}
}

// ticking are the decisions about a rule: its ticks, triggers and the ends of its runs.
var ticking = decisions[*schedule.Rule]{
	rev: func(r *schedule.Rule) int64 { return r.Rev },
	rules: map[string]func(*schedule.Rule, int, time.Time) (*schedule.Rule, bool){
		"tick": func(r *schedule.Rule, _ int, at time.Time) (*schedule.Rule, bool) {
			after := tickplan.Plan(r, timesOf(r), at)
			return after, after != nil
		},
		"trigger": func(r *schedule.Rule, n int, at time.Time) (*schedule.Rule, bool) {
			return tickplan.Trigger(r, timesOf(r), fmt.Sprint(n, "-", at.Unix()), false, at), true
		},
		"end": func(r *schedule.Rule, n int, at time.Time) (*schedule.Rule, bool) {
			if len(r.Active) == 0 {
				return nil, false
			}
			run := r.Active[n%len(r.Active)]
			task := &model.Task{ID: run.ID, CreatedAt: at, FinishedAt: at, Origin: &model.Origin{Tick: &model.Tick{Run: run.ID, Nominal: run.Nominal, Attempt: run.Attempt, Manual: run.Manual}}}
			return tickplan.Ended(r, task, schedule.RunSuccess, "", at), true
		},
	},
	matters: func(r *schedule.Rule) string {
		ids := func(runs []schedule.RunRef) (ids []string) {
			for _, run := range runs {
				ids = append(ids, run.ID)
			}
			return ids
		}
		return fmt.Sprint(r.Status, " decided to ", r.DecidedTo.Unix(), ", next ", r.NextFireAt.Unix(), ", active ", ids(r.Active), ", queued ", ids(r.Queued))
	},
	mark: func(r *schedule.Rule, mark string) { r.Decision = mark },
}

func ruleOfHistory(t *testing.T, name string) *schedule.Rule {
	t.Helper()
	r, cal, err := rulespec.Build(&schedule.Spec{Name: name, Cron: "*/2 * * * * *", Type: "t", MaxConcurrency: 3, QueueLimit: 4}, decidedFrom)
	require.NoError(t, err)
	r.ID = name
	return tickplan.Enable(r, cal, decidedFrom)
}

func timesOf(r *schedule.Rule) *calendar.Schedule {
	cal, err := tickplan.TimesOf(r)
	if err != nil {
		panic(err)
	}
	return cal
}

func TestTicksAreLinearizable(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var docs []*schedule.Rule
		for n := range 3 {
			r := ruleOfHistory(t, fmt.Sprint("rule ", n))
			require.NoError(t, a.store.Rules.Insert(t.Context(), r))
			docs = append(docs, r)
		}
		ticking.check(t, a.store.Rules, docs, e.Of(150, 80))
	})
}

// advancing are the decisions about a flow: the ends of its nodes, and what people say.
var advancing = decisions[*graph.Flow]{
	rev: func(f *graph.Flow) int64 { return f.Rev },
	rules: map[string]func(*graph.Flow, int, time.Time) (*graph.Flow, bool){
		"advance": func(f *graph.Flow, n int, at time.Time) (*graph.Flow, bool) {
			i, ok := nodeThat(f, n, func(s *graph.State) bool { return s.Status == graph.NodeReady })
			if !ok {
				return nil, false
			}
			end := flowplan.End{Node: i, Life: f.States[i].Life, Status: model.StatusSuccess}
			if n%3 == 0 {
				end.Status, end.ErrorInfo = model.StatusFailure, "as it was told"
			}
			after, err := flowplan.Ended(f, []flowplan.End{end}, &flowplan.Inputs{}, at)
			return after, err == nil && after != f
		},
		"resolve": func(f *graph.Flow, n int, at time.Time) (*graph.Flow, bool) {
			i, ok := nodeThat(f, n, func(s *graph.State) bool { return s.Status == graph.NodePending && s.Own })
			if !ok {
				return nil, false
			}
			after, err := flowplan.Resolve(f, i, graph.NodeSuccess, "done by hand", &flowplan.Inputs{}, at)
			return after, err == nil && after != f
		},
		"retry": func(f *graph.Flow, n int, at time.Time) (*graph.Flow, bool) {
			i, ok := nodeThat(f, n, func(s *graph.State) bool { return s.Status == graph.NodeSuccess })
			if !ok {
				return nil, false
			}
			after, err := flowplan.RetryFrom(f, i, &flowplan.Inputs{}, at)
			return after, err == nil && after != f
		},
	},
	matters: func(f *graph.Flow) string {
		text := fmt.Sprint(f.Status)
		for _, s := range f.States {
			text += fmt.Sprint(" ", s.Status, " ", s.Life)
		}
		return text
	},
	mark: func(f *graph.Flow, mark string) { f.Decision = mark },
}

// nodeThat chooses among the nodes whose state is like that.
func nodeThat(f *graph.Flow, n int, like func(*graph.State) bool) (i int, ok bool) {
	var all []int
	for i := range f.States {
		if like(&f.States[i]) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[n%len(all)], true
}

func TestAdvancesOfFlowsAreLinearizable(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var docs []*graph.Flow
		for n := range 3 {
			f, err := flowspec.Build(&graph.Spec{Key: fmt.Sprint(n), Nodes: []graph.NodeSpec{
				{ID: "a", Type: "t"}, {ID: "b", Type: "t", After: []string{"a"}}, {ID: "c", Type: "t", After: []string{"a"}}, {ID: "d", Type: "t", After: []string{"b", "c"}},
			}}, fmt.Sprint(n), decidedFrom)
			require.NoError(t, err)
			exists, err := a.store.Flows.Insert(t.Context(), f)
			require.NoError(t, err)
			require.False(t, exists)
			docs = append(docs, f)
		}
		advancing.check(t, a.store.Flows, docs, e.Of(150, 80))
	})
}

// A history of decisions that the rules do not allow is refused.
func TestADecisionThatTheRulesForbidIsRefused(t *testing.T) {
	t.Parallel()
	first := ruleOfHistory(t, "rule")
	at := func(s int) time.Time { return decidedFrom.Add(time.Duration(s) * time.Second) }
	second, ok := ticking.rules["tick"](first, 0, at(2))
	require.True(t, ok)
	third, ok := ticking.rules["tick"](second, 0, at(4))
	require.True(t, ok)
	begins := decisionOp[*schedule.Rule]{kind: opBegins, begins: first}
	read := func(r *schedule.Rule) decisionOp[*schedule.Rule] {
		return decisionOp[*schedule.Rule]{kind: opRead, was: ticking.seen(r)}
	}
	tick := func(of *schedule.Rule, s int, was string) decisionOp[*schedule.Rule] {
		return decisionOp[*schedule.Rule]{kind: "tick", rev: of.Rev, at: at(s), was: was}
	}
	for name, row := range map[string]struct {
		legal bool
		ops   []decisionOp[*schedule.Rule]
	}{
		"one after the other":             {true, []decisionOp[*schedule.Rule]{begins, read(first), tick(first, 2, "applied"), read(second), tick(second, 4, "applied"), read(third)}},
		"crossed":                         {true, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "applied"), tick(first, 4, "crossed"), read(second)}},
		"unknown, and it was not written": {true, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "unknown"), read(first)}},
		"unknown, and it was written":     {true, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "unknown"), read(second)}},
		"a tick that is decided twice":    {false, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "applied"), tick(first, 2, "applied")}},
		"a decision that is lost":         {false, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "applied"), read(first)}},
		"a decision crossed by nobody":    {false, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "crossed")}},
		"something else than the rule":    {false, []decisionOp[*schedule.Rule]{begins, tick(first, 2, "applied"), read(third)}},
		"a tick before its time":          {false, []decisionOp[*schedule.Rule]{begins, tick(first, 1, "applied")}},
	} {
		t.Run(name, func(t *testing.T) {
			history := make([]porcupine.Operation, len(row.ops))
			for i, o := range row.ops {
				history[i] = porcupine.Operation{Input: o, Call: int64(2 * i), Return: int64(2*i + 1)}
			}
			require.Equal(t, row.legal, porcupine.CheckOperations(ticking.model(), history))
		})
	}
}
