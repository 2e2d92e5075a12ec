package sim

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// tampers are what may be wrong, each with what the checks say then.
var tampers = []struct {
	want string
	do   func(w *world, f *found)
}{
	{"is lost", func(w *world, f *found) { delete(f.Tasks, w.success(f, work).ID) }},
	{"which no execution returned", func(w *world, f *found) {
		f.change(w.success(f, work), func(t *model.Task) { t.Result = text("nobody") })
	}},
	{"had taken over before it ended", func(w *world, f *found) {
		t := w.success(f, work)
		late := *w.ran[t.ID][len(w.ran[t.ID])-1]
		late.Name, late.token.Rev = "of another", late.token.Rev+1
		w.ran[t.ID] = append(w.ran[t.ID], &late)
	}},
	{"is Failure after", func(w *world, f *found) {
		f.change(w.success(f, work), func(t *model.Task) { t.Status = model.StatusFailure })
	}},
	{"is Cancelled, and nobody has asked", func(w *world, f *found) {
		f.change(w.success(f, work), func(t *model.Task) { t.Status = model.StatusCancelled })
	}},
	{"is ManuallyProcessed, and nobody has asked", func(w *world, f *found) {
		f.change(w.success(f, work), func(t *model.Task) { t.Status = model.StatusManuallyProcessed })
	}},
	{"in the same life", func(w *world, f *found) {
		w.final[lifeOf(w.success(f, work))] = ending{status: model.StatusCancelled}
	}},
	{"and was given 9", func(w *world, f *found) { w.priority[lifeOf(w.success(f, work))] = 9 }},
	{"errors, its handler failed", func(w *world, f *found) { f.change(w.success(f, work), func(t *model.Task) { t.ErrorCount = 3 }) }},
	{"was accepted, and the task is", func(w *world, f *found) {
		x := *w.ran[w.success(f, pulled).ID][0]
		x.Name, x.accepted = "of another", true
		w.ran[x.task] = []*execution{&x}
	}},
	{"was refused, and is its result", func(w *world, f *found) {
		for _, x := range w.ran[w.success(f, pulled).ID] {
			x.fenced = true
		}
	}},
	{"has 0 records", func(_ *world, f *found) { f.Runs = f.Runs[1:] }},
	{"has 2 records", func(_ *world, f *found) { f.Runs = append(f.Runs, f.Runs[0]) }},
	{"has edition 0, and edition 1", func(w *world, _ *found) { w.edited[1] = time.Time{} }},
	{"of 3 steps succeeded", func(_ *world, f *found) {
		for id, doc := range f.Plans {
			changed := *doc
			changed.RealRepet--
			f.Plans[id] = &changed
		}
	}},
	{"of the flow -/0 began before a had ended", func(w *world, f *found) { w.beginsBefore(f, "-/node/flow:0:b", "-/node/flow:0:a") }},
	{"was appended, and is not in the stream", func(w *world, f *found) {
		f.nodes = slices.DeleteFunc(f.nodes, func(n graph.Node) bool { return n.Node == w.appends[0].nodes[0] })
	}},
	{"is in the stream twice", func(_ *world, f *found) { f.nodes = append(f.nodes, f.links()[0]) }},
	{"is before nodes whose append was answered before it began", func(_ *world, f *found) {
		last := len(f.links())
		for i := range f.nodes {
			f.nodes[i].Position = int64(last) + 1 - f.nodes[i].Position
		}
	}},
	{"of the stream began before", func(w *world, f *found) { w.beginsBefore(f, f.links()[1].TaskID, f.links()[0].TaskID) }},
	{"was not delivered", func(w *world, f *found) {
		t := w.success(f, work)
		delete(w.receiver.got, lifecycle.DeliveryKey(t.ID, t.Generation))
	}},
	{"is of no life of a task", func(w *world, _ *found) { w.receiver.got["another"] = &delivered{accepted: true} }},
	{"which ended as Success with", func(w *world, f *found) {
		t := w.success(f, work)
		w.receiver.got[lifecycle.DeliveryKey(t.ID, t.Generation)] = &delivered{accepted: true, body: []byte(`{"result": "of another"}`)}
	}},
	{"there is: the order", func(_ *world, f *found) { clear(f.orders) }},
	{"was aborted, and is there", func(w *world, f *found) {
		for id := range f.orders {
			w.ordered[id] = false
		}
	}},
	{"runs on a and on b", func(w *world, _ *found) {
		w.run(w.anExecution("a", "-/work/twice", work))
		w.run(w.anExecution("b", "-/work/twice", work))
	}},
	{"tasks of the type limited run", func(w *world, _ *found) {
		for _, task := range []string{"1", "2", "3"} {
			w.run(w.anExecution("a", task, limited))
		}
	}},
	{"although it is Cancelled", func(w *world, _ *found) {
		w.cancelled[life{"-/work/gone", 0}] = true
		w.run(w.anExecution("a", "-/work/gone", work))
	}},
	{"although nobody has released it", func(w *world, _ *found) {
		w.holds("-/work/held")
		w.run(w.anExecution("a", "-/work/held", work))
	}},
	{"although its type was paused", func(w *world, _ *found) {
		w.paused = time.Now().Add(-pauseReaches - time.Second)
		w.run(w.anExecution("a", "-/work/paused", work))
	}},
}

// Each promise that is broken is found out: in a world in which all went well, one thing is changed at a time.
func TestTheChecksFindWhatIsWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("it compares what is stored: make scenarios runs it without the race detector")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w *world
		for seed := uint64(1); w == nil || w.success(w.found, work) == nil || w.success(w.found, pulled) == nil; seed++ { // chance draws the types
			w = newWorld(seed, quickDir(t))
			w.plays = plays{ticks: true, graphs: true, repeats: true, stream: true, pulls: true, parks: true, callbacks: true, transactions: true}
			require.NoError(t, w.play(func(*world) { time.Sleep(troubled) }))
			require.Empty(t, w.violations(), w)
		}
		for _, tamper := range tampers {
			changed := w.twin()
			tamper.do(changed, changed.found)
			if why := changed.waits(changed.found); why != "" {
				changed.violated("%s", why)
			}
			changed.check(changed.found)
			require.True(t, slices.ContainsFunc(changed.violations(), func(s string) bool { return strings.Contains(s, tamper.want) }),
				"%s: %q", tamper.want, changed.violations())
		}
	})
}

// twin is a world of which the same is known, and that may be changed.
func (w *world) twin() *world {
	out := newWorld(w.seed, "")
	out.plays, out.db, out.deeds, out.asked, out.appends = w.plays, w.db, w.deeds, w.asked, w.appends
	out.final, out.priority, out.edited, out.ordered = maps.Clone(w.final), maps.Clone(w.priority), maps.Clone(w.edited), maps.Clone(w.ordered)
	out.cancelled, out.held = maps.Clone(w.cancelled), maps.Clone(w.held)
	out.receiver.got = maps.Clone(w.receiver.got)
	for id, ran := range w.ran {
		for _, x := range ran {
			same := *x
			out.ran[id] = append(out.ran[id], &same)
		}
	}
	f := *w.found
	stored := *f.Stored
	f.Stored = &stored
	f.Tasks, f.Flows, f.Plans, f.orders = maps.Clone(f.Tasks), maps.Clone(f.Flows), maps.Clone(f.Plans), maps.Clone(f.orders)
	f.Runs, f.nodes = slices.Clone(f.Runs), slices.Clone(f.nodes)
	out.found = &f
	return out
}

func text(s string) bson.RawValue {
	typ, data, err := bson.MarshalValue(s)
	if err != nil {
		panic(err) // it never fails
	}
	return bson.RawValue{Type: typ, Value: data}
}

// anExecution is one that runs on a process.
func (w *world) anExecution(on, task, typ string) *execution {
	return &execution{p: &process{w: w, name: on}, ctx: context.Background(), task: task, typ: typ}
}

// success is a task of the type that succeeded; nil = there is none.
func (w *world) success(f *found, typ string) *model.Task {
	for _, t := range f.Tasks {
		if t.Type == typ && t.Status == model.StatusSuccess && w.asked.Tasks[t.ID] {
			return t
		}
	}
	return nil
}

// change changes a task that is stored.
func (f *found) change(t *model.Task, do func(*model.Task)) {
	changed := *t
	do(&changed)
	f.Tasks[t.ID] = &changed
}

// links are the nodes of the stream, in their order.
func (f *found) links() (out []graph.Node) {
	out = slices.Clone(f.nodes)
	slices.SortFunc(out, func(x, y graph.Node) int { return int(x.Position - y.Position) })
	return out
}

// beginsBefore has a task begin before another one has ended.
func (w *world) beginsBefore(f *found, id, other string) {
	w.ran[id][0].Began = w.executions().End(f.Tasks[other]).Add(-time.Millisecond)
}
