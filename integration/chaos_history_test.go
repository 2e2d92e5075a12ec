package integration

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// op is one write of a client to one task, and whether it was applied.
type op struct {
	task, kind, exec, worker string
	applied                  bool
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// after is what the pure rules make of a task; nil = they refuse it.
func (o op) after(t *model.Task) *model.Task {
	eff := lifecycle.ResolveOptions(t.Options)
	_, w := lifecycle.ExecutionOf(t, o.exec)
	var after *model.Task
	var err error
	switch o.kind {
	case "claim":
		after, _ = lifecycle.Claim(t, lifecycle.Claimant{WorkerID: o.worker, ExecID: o.exec}, eff, noon)
	case "ping":
		after = t // it changes nothing of what is looked at here
	case "expire":
		after = lifecycle.Expire(t, eff, far, 0)
	case "cancel":
		after, err = lifecycle.Cancel(t, "", eff, noon)
	case "retry":
		after, err = lifecycle.RetryNow(t, "", eff, noon)
	case "resolve":
		after, err = lifecycle.Resolve(t, "", eff, noon)
	default:
		after, err = lifecycle.Finish(t, o.exec, outcomes[o.kind], eff, noon, 0)
	}
	if err != nil || (o.kind == "ping" || o.kind == "expire") && (w == nil || !lifecycle.Open(w)) {
		return nil
	}
	return after
}

// outcomes are the ways in which an execution ends.
var outcomes = map[string]lifecycle.Outcome{
	"succeed": lifecycle.Success(bson.RawValue{}), "fail": lifecycle.Failed(failkind.Error, "as it was told"), "release": lifecycle.Failed(failkind.Released, ""),
}

// byTheRules is a task on which one client after the other acts, as the pure rules say. A client whose claim was
// refused may have read too early, or won and lost the task again before it looked. One that looks for lapsed
// leases may be refused because of a ping.
var byTheRules = porcupine.NondeterministicModel{
	Init: func() []any {
		return []any{lifecycle.NewTask(lifecycle.Draft{Type: chaosWork.Name(), Options: historyTask}, noon)}
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byTask := map[string][]porcupine.Operation{}
		for _, o := range history {
			task := o.Input.(op).task //nolint:forcetypeassert // only ops are recorded
			byTask[task] = append(byTask[task], o)
		}
		return slices.Collect(maps.Values(byTask))
	},
	Step: func(state, input, _ any) []any {
		t, o := state.(*model.Task), input.(op) //nolint:forcetypeassert // as above
		after := o.after(t)
		switch {
		case o.applied && after == nil:
			return nil
		case o.applied:
			return []any{after}
		case after == nil, o.kind == "expire":
			return []any{t}
		case o.kind == "claim":
			return []any{t, after}
		default:
			return nil // it should have been applied
		}
	},
	Equal: func(a, b any) bool { return matters(a.(*model.Task)) == matters(b.(*model.Task)) }, //nolint:forcetypeassert // as above
}

// matters is what decides about what may be done with a task.
func matters(t *model.Task) string {
	open := ""
	if w := openIn(t); w != nil {
		open = w.ExecID
	}
	return fmt.Sprint(t.Status, " ", open, " ", t.CancelRequestedAt.IsZero())
}

// historyTask is a task whose first error makes it Pending, and which may lapse as often as it does.
var historyTask = model.Options{NeedManual: new(true), Retry: &model.Retry{Strategy: model.RetryNone}, MaxLapses: new(1_000_000)}

func TestClaimsAndEndsAreLinearizable(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var mu sync.Mutex
		var history []porcupine.Operation
		counts := map[string]int{}
		record := func(client int, o op, call time.Duration) {
			back := clock.System().Monotonic()
			mu.Lock()
			defer mu.Unlock()
			history = append(history, porcupine.Operation{ClientId: client, Input: o, Call: int64(call), Return: int64(back)})
			counts[fmt.Sprintf("%s %v", o.kind, o.applied)]++
		}
		missing := func() (kinds []string) {
			for _, kind := range []string{"claim", "expire", "ping", "succeed", "fail", "release", "cancel", "retry", "resolve"} {
				if counts[kind+" true"] == 0 {
					kinds = append(kinds, kind)
				}
			}
			if counts["ping false"]+counts["succeed false"]+counts["fail false"]+counts["release false"] == 0 {
				kinds = append(kinds, "one that is fenced")
			}
			return kinds
		}
		for round := 0; round == 0 || len(missing()) > 0 && round < 20; round++ { // mostly one
			ids := a.send(e.Of(30, 10), producer.NeedManual(true), producer.Retry(*historyTask.Retry), producer.MaxLapses(*historyTask.MaxLapses))
			var wg sync.WaitGroup
			for client := range 6 {
				wg.Go(func() {
					c := &historian{arena: a, client: client, random: rand.New(rand.NewPCG(uint64(client), uint64(round))), record: record, ids: ids}
					for range e.Of(150, 40) {
						c.turn()
					}
				})
			}
			wg.Wait()
		}
		t.Log(counts)
		require.Empty(t, missing(), "the history lacks these")
		m := byTheRules.ToModel()
		for _, ops := range m.Partition(history) {
			if !porcupine.CheckOperations(m, ops) {
				slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
				for _, o := range ops {
					t.Logf("%9d to %9d µs: %+v", o.Call/1000, o.Return/1000, o.Input)
				}
				task, _ := bson.MarshalExtJSON(a.get(ops[0].Input.(op).task), false, false) //nolint:forcetypeassert // as above
				require.Fail(t, "not linearizable", "%s", task)
			}
		}
	})
}

// Histories that the rules do not allow are refused. A model that accepts everything proves nothing.
func TestAHistoryThatTheRulesForbidIsRefused(t *testing.T) {
	t.Parallel()
	claim, other := op{kind: "claim", exec: "x", worker: "1", applied: true}, op{kind: "claim", exec: "y", worker: "2", applied: true}
	of := func(kind, exec string, applied bool) op { return op{kind: kind, exec: exec, applied: applied} }
	for name, row := range map[string]struct {
		legal bool
		ops   []op
	}{
		"one after the other":              {true, []op{claim, of("ping", "x", true), of("release", "x", true), other, of("succeed", "y", true)}},
		"two at once":                      {false, []op{claim, other}},
		"a takeover":                       {true, []op{claim, of("expire", "x", true), other, of("succeed", "x", false), of("succeed", "y", true)}},
		"a late result":                    {false, []op{claim, of("expire", "x", true), other, of("succeed", "x", true)}},
		"a ping of a lost lease":           {false, []op{claim, of("expire", "x", true), of("ping", "x", true)}},
		"a holder that is fenced":          {false, []op{claim, of("succeed", "x", false)}},
		"a claim of an ended task":         {false, []op{claim, of("succeed", "x", true), other}},
		"a cancel with an open execution":  {true, []op{claim, of("cancel", "", true), of("ping", "x", true), of("release", "x", true), of("retry", "", true), other}},
		"a claim after a cancel":           {false, []op{of("cancel", "", true), claim}},
		"a cancel after the end":           {false, []op{claim, of("succeed", "x", true), of("cancel", "", true)}},
		"a person resolves":                {true, []op{claim, of("fail", "x", true), of("resolve", "", true), of("resolve", "", false)}},
		"a resolve of what runs":           {false, []op{claim, of("resolve", "", true)}},
		"a resolve that should have gone":  {false, []op{claim, of("fail", "x", true), of("resolve", "", false)}},
		"a success that is run once again": {false, []op{claim, of("succeed", "x", true), of("retry", "", true)}},
	} {
		t.Run(name, func(t *testing.T) {
			history := make([]porcupine.Operation, len(row.ops))
			for i, o := range row.ops {
				history[i] = porcupine.Operation{Input: o, Call: int64(2 * i), Return: int64(2*i + 1)}
			}
			require.Equal(t, row.legal, porcupine.CheckOperations(byTheRules.ToModel(), history))
		})
	}
}

// historian is a client that claims batches, expires what others hold and ends what it
// holds, as a worker does, and cancels, retries and resolves tasks as a person does.
type historian struct {
	*arena
	client int
	random *rand.Rand
	record func(int, op, time.Duration)
	ids    []string
	turns  int
}

// far is when every lease has lapsed: workers are well here, so lapses are made up. Each
// is at a millisecond of its own: two finders that end the same lease in the same one
// cannot tell, and need not, which of them it was.
var far = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *historian) turn() {
	c.turns++
	exec := fmt.Sprintf("%d-%d", c.client, c.turns)
	tasks, err := c.store.Tasks.ByIDs(c.t.Context(), c.ids)
	if err != nil {
		c.t.Error(err)
		return
	}
	now := c.store.Clock.Now()
	then := far.Add(time.Duration(6*c.turns+c.client) * time.Millisecond)
	var claims, expiries []store.Write
	for _, task := range tasks {
		eff := lifecycle.ResolveOptions(task.Options)
		if after, no := lifecycle.Claim(task, c.claimant(exec), eff, now); no == "" && len(claims) < 5 {
			claims = append(claims, store.Write{Before: task, After: after})
		} else if open := openIn(task); open != nil && c.random.IntN(8) == 0 && len(expiries) < 2 {
			expiries = append(expiries, store.Write{Before: task, After: lifecycle.Expire(task, eff, then, 0), Lapsed: open.ExecID, At: then})
		}
	}
	c.write("expire", "", expiries)
	held := c.write("claim", exec, claims)
	c.ping(exec, held)
	c.person(tasks)
	c.endAll(exec, held)
}

func (c *historian) claimant(exec string) lifecycle.Claimant {
	return lifecycle.Claimant{WorkerID: fmt.Sprint(c.client), ExecID: exec}
}

func openIn(t *model.Task) *model.WorkerState {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; lifecycle.Open(w) {
			return w
		}
	}
	return nil
}

// write carries out and records a batch; it returns what the applied ones became.
func (c *historian) write(kind, exec string, writes []store.Write) (applied []*model.Task) {
	call := clock.System().Monotonic()
	written, err := c.store.Tasks.Writes(c.t.Context(), writes, 0)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	for i, w := range written {
		o := op{task: writes[i].After.ID, kind: kind, exec: exec, worker: fmt.Sprint(c.client), applied: w.Applied}
		if kind == "expire" {
			o.exec = writes[i].Lapsed
		}
		c.record(c.client, o, call)
		if w.Applied {
			applied = append(applied, writes[i].After)
		}
	}
	return applied
}

// ping extends the leases of what it holds.
func (c *historian) ping(exec string, held []*model.Task) {
	pings := make([]store.Ping, len(held))
	for i, task := range held {
		index, _ := lifecycle.ExecutionOf(task, exec)
		pings[i] = store.Ping{ID: task.ID, ExecID: exec, Index: index, Until: c.store.Clock.Now().Add(time.Minute)}
	}
	call := clock.System().Monotonic()
	lost, err := c.store.Tasks.Pings(c.t.Context(), pings, 0)
	if err != nil {
		c.t.Error(err)
		return
	}
	for _, task := range held {
		gone := slices.ContainsFunc(lost, func(p store.Ping) bool { return p.ID == task.ID })
		c.record(c.client, op{task: task.ID, kind: "ping", exec: exec, applied: !gone}, call)
	}
}

// person does to a task what suits how it was read, or anything.
func (c *historian) person(tasks map[string]*model.Task) {
	id := c.ids[c.random.IntN(len(c.ids))]
	for _, pending := range tasks {
		if pending.Status == model.StatusPending && c.random.IntN(2) == 0 {
			id = pending.ID
		}
	}
	kinds := map[model.Status][]string{
		model.StatusPending: {"resolve", "retry", "retry"}, model.StatusCancelled: {"retry"}, model.StatusExecuting: {"cancel", "resolve"}, model.StatusNew: {"cancel", "resolve"},
	}[tasks[id].Status]
	if len(kinds) == 0 || c.random.IntN(4) == 0 {
		kinds = []string{"cancel", "retry", "resolve"}
	}
	kind := kinds[c.random.IntN(len(kinds))]
	do := map[string]func() (*model.Task, error){
		"cancel":  func() (*model.Task, error) { return c.p.Cancel(c.t.Context(), id, "") },
		"retry":   func() (*model.Task, error) { return c.p.Retry(c.t.Context(), id, "") },
		"resolve": func() (*model.Task, error) { return c.p.Resolve(c.t.Context(), id, "") },
	}[kind]
	call := clock.System().Monotonic()
	_, err := do()
	if refused := (*model.RefusedError)(nil); err != nil && !errors.As(err, &refused) {
		c.t.Error(err)
		return
	}
	c.record(c.client, op{task: id, kind: kind, applied: err == nil}, call)
}

func (c *historian) endAll(exec string, held []*model.Task) {
	for _, task := range held {
		kind := "release"
		switch n := c.random.IntN(20); {
		case n == 0:
			kind = "succeed"
		case n < 10:
			kind = "fail"
		}
		call := clock.System().Monotonic()
		for {
			after, err := lifecycle.Finish(task, exec, outcomes[kind], lifecycle.ResolveOptions(task.Options), c.store.Clock.Now(), 0)
			if err != nil { // fenced, as a read told
				c.record(c.client, op{task: task.ID, kind: kind, exec: exec}, call)
				break
			}
			written, err := c.store.Tasks.Writes(c.t.Context(), []store.Write{{Before: task, After: after}}, 0)
			if err != nil {
				c.t.Error(err)
				return
			}
			if written[0].Applied {
				c.record(c.client, op{task: task.ID, kind: kind, exec: exec, applied: true}, call)
				break
			}
			if !written[0].Held { // otherwise the same again
				task = written[0].Current
			}
		}
	}
}
