package integration

import (
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
)

// op is one write of a client to one task, and whether it was applied.
type op struct {
	task, kind, exec string
	applied          bool
}

// oneHolder is what a task is to those who write to it: nobody holds it, or exactly one
// execution does, until it ends or is taken as lapsed. Whoever is refused must have met
// somebody. A claim may also be refused because the claimant had read too early, or have
// been won and taken as lapsed before the claimant could look.
var oneHolder = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byTask := map[string][]porcupine.Operation{}
		for _, o := range history {
			task := o.Input.(op).task //nolint:forcetypeassert // only ops are recorded
			byTask[task] = append(byTask[task], o)
		}
		return slices.Collect(maps.Values(byTask))
	},
	Step: func(state, input, _ any) []any {
		holder, o := state.(string), input.(op) //nolint:forcetypeassert // as above
		only := func(legal bool, next string) []any {
			if legal {
				return []any{next}
			}
			return nil
		}
		switch {
		case o.kind == "claim" && o.applied:
			return only(holder == "", o.exec)
		case o.kind == "claim" && holder == "":
			return []any{"", o.exec}
		case o.kind == "claim", o.kind == "expire" && !o.applied: // an expired one may have been pinged
			return []any{holder}
		case o.kind == "finish" && o.applied:
			return only(holder == o.exec, "ended")
		case o.applied: // released, expired
			return only(holder == o.exec, "")
		default:
			return only(holder != o.exec, holder)
		}
	},
}

func TestClaimsAndEndsAreLinearizable(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(e.Of(30, 10))
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
		var wg sync.WaitGroup
		for client := range 6 {
			wg.Go(func() {
				c := &historian{arena: a, client: client, random: rand.New(rand.NewPCG(uint64(client), 3)), record: record, ids: ids}
				for range e.Of(150, 40) {
					c.turn()
				}
			})
		}
		wg.Wait()
		t.Log(counts)
		for _, kind := range []string{"claim true", "claim false", "finish true", "release true", "expire true"} {
			require.Positive(t, counts[kind], "the history has none: %s", kind)
		}
		require.Positive(t, counts["finish false"]+counts["release false"], "nobody was fenced")
		held := oneHolder.ToModel()
		for _, ops := range held.Partition(history) {
			if !porcupine.CheckOperations(held, ops) {
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

// historian is a client that claims batches, expires what others hold and ends what it
// holds, as a worker does.
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
		eff := lifecycle.ResolveOptions(task.Options, model.Options{MaxLapses: new(1_000_000)})
		if after, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: fmt.Sprint(c.client), ExecID: exec}, eff, now); no == "" && len(claims) < 5 {
			claims = append(claims, store.Write{Before: task, After: after})
		} else if open := openIn(task); open != nil && c.random.IntN(8) == 0 && len(expiries) < 2 {
			expiries = append(expiries, store.Write{Before: task, After: lifecycle.Expire(task, eff, then, 0), Lapsed: open.ExecID, At: then})
		}
	}
	c.write("expire", "", expiries)
	c.endAll(exec, c.write("claim", exec, claims))
}

func openIn(t *model.Task) *model.WorkerState {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; w.Open() {
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
		o := op{task: writes[i].After.ID, kind: kind, exec: exec, applied: w.Applied}
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

func (c *historian) endAll(exec string, held []*model.Task) {
	for _, task := range held {
		kind, out := "release", lifecycle.Failed(failkind.Released, "")
		if c.random.IntN(10) == 0 {
			kind, out = "finish", lifecycle.Success(bson.RawValue{})
		}
		call := clock.System().Monotonic()
		for {
			after, err := lifecycle.Finish(task, exec, out, lifecycle.ResolveOptions(task.Options), c.store.Clock.Now(), 0)
			if err != nil { // fenced, as a read told
				c.record(c.client, op{task.ID, kind, exec, false}, call)
				break
			}
			written, err := c.store.Tasks.Writes(c.t.Context(), []store.Write{{Before: task, After: after}}, 0)
			if err != nil {
				c.t.Error(err)
				return
			}
			if written[0].Applied {
				c.record(c.client, op{task.ID, kind, exec, true}, call)
				break
			}
			task = written[0].Current
		}
	}
}
