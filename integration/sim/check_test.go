package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func (w *world) rules() (*periodic.Periodic, error) {
	return periodic.New(periodic.Config{Database: w.observer.Database("sim")})
}

// found is what is stored.
type found struct {
	tasks map[string]*model.Task
	flows map[string]*graph.Flow
	plans map[string]*repeat.Plan
	runs  []schedule.Run
	rule  schedule.Rule
}

func read[T any](w *world, coll string) (out []T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cur, err := w.observer.Database("sim").Collection(coll).Find(ctx, bson.D{})
	if err == nil {
		err = cur.All(ctx, &out)
	}
	return out, err
}

func (w *world) read() (f *found, err error) {
	f = &found{tasks: map[string]*model.Task{}, flows: map[string]*graph.Flow{}, plans: map[string]*repeat.Plan{}}
	raws, err := read[bson.Raw](w, "tasks")
	if err != nil {
		return nil, err
	}
	for _, raw := range raws {
		if strings.HasPrefix(raw.Lookup("_id").StringValue(), "~") {
			continue // the sentinel of the schema
		}
		t, err := store.Decode(raw)
		if err != nil {
			return nil, err
		}
		f.tasks[t.ID] = t
	}
	st, err := store.Open(store.Config{Database: w.observer.Database("sim")})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for id := range w.flows {
		if f.flows[id], err = st.Flows.Get(ctx, id); err != nil && !errors.Is(err, store.ErrNoFlow) {
			return nil, err
		}
	}
	for id := range w.plans {
		if f.plans[id], err = st.Plans.Get(ctx, id); err != nil && !errors.Is(err, store.ErrNoPlan) {
			return nil, err
		}
	}
	rules, err := w.rules()
	if err != nil {
		return nil, err
	}
	r, err := rules.Named(ctx, "", "rule")
	if err != nil {
		return nil, err
	}
	f.rule = *r
	f.runs, err = read[schedule.Run](w, "periodic_runs")
	return f, err
}

// settled waits until everything has ended.
func (w *world) settled() *found {
	healed := time.Now()
	for {
		time.Sleep(5 * time.Second)
		f, err := w.read()
		why := ""
		if err == nil {
			why = w.waits(f)
		}
		switch {
		case err == nil && why == "":
			w.note("", "everything has ended, %v later", time.Since(healed).Round(time.Second))
			return f
		case time.Since(healed) < patience:
		case err != nil:
			w.violated("what is stored cannot be read: %v", err)
			return nil
		default:
			w.violated("after %v of peace %s", patience, why)
			return f
		}
	}
}

// waits says what has not ended.
func (w *world) waits(f *found) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) > 0 {
		return "handlers run"
	}
	for id := range w.sent {
		if f.tasks[id] == nil {
			return "the task " + id + " is lost"
		}
	}
	for id, t := range f.tasks {
		if !t.Status.Ended() {
			return "the task " + id + " is " + string(t.Status)
		}
	}
	for id, doc := range f.flows {
		if doc == nil {
			return "the flow " + id + " is lost"
		}
		if doc.Status != graph.StatusFinish {
			return "the flow " + id + " is " + string(doc.Status)
		}
	}
	for id, doc := range f.plans {
		if doc == nil {
			return "the plan " + id + " is lost"
		}
		if doc.Status != repeat.StatusFinish {
			return "the plan " + id + " is " + string(doc.Status)
		}
	}
	if w.db.now().Before(f.rule.EndAt.Add(10 * time.Second)) {
		return "the rule may tick"
	}
	for _, r := range f.runs {
		if r.Status == schedule.RunScheduled || r.Status == schedule.RunRunning {
			return "the run " + r.ID + " is " + string(r.Status)
		}
	}
	return ""
}

// check looks whether the promises were kept.
func (w *world) check(f *found) {
	if f == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, t := range f.tasks {
		w.checkTask(id, t)
	}
	for id, ran := range w.ran {
		if f.tasks[id] == nil {
			w.violated("%s ran %d times, and is not stored", id, len(ran))
		}
	}
	w.checkTicks(f)
	w.checkFlows(f)
	w.checkPlans(f)
}

// checkTask: the result is that of one execution that succeeded, and no task had more errors than it may.
func (w *world) checkTask(id string, t *model.Task) {
	won := 0
	for i := range t.WorkerStates {
		if !t.WorkerStates[i].SuccessTime.IsZero() {
			won++
		}
	}
	failed := 0
	for _, x := range w.ran[id] {
		if !x.ended.IsZero() && x.err != nil {
			failed++
		}
	}
	switch t.Status { //nolint:exhaustive // no task ends otherwise
	case model.StatusSuccess:
		if won != 1 {
			w.violated("%s is Success by %d executions", id, won)
		}
		result, _ := t.Result.StringValueOK()
		if !slices.ContainsFunc(w.ran[id], func(x *execution) bool { return x.name == result && !x.ended.IsZero() && x.err == nil }) {
			w.violated("the result of %s is %q, which no execution returned", id, result)
		}
	case model.StatusFailure:
		if failed <= maxErrors {
			w.violated("%s is Failure after %d errors: %s", id, failed, t.ErrorInfo)
		}
	default:
		w.violated("%s ended as %s: %s %s", id, t.Status, t.Remark, t.ErrorInfo)
	}
	if t.ErrorCount > maxErrors+1 || t.ErrorCount > failed {
		w.violated("%s has %d errors, its handler failed %d times", id, t.ErrorCount, failed)
	}
}

// checkTicks: each tick has one record, and each that was not skipped one task.
func (w *world) checkTicks(f *found) {
	recorded := map[int64]int{}
	for i := range f.runs {
		r := &f.runs[i]
		last := r.Nominal
		if !r.Last.IsZero() {
			last = r.Last
		}
		n := int64(0)
		for at := r.Nominal; !at.After(last); at = at.Add(everySec * time.Second) {
			recorded[at.Unix()]++
			n++
		}
		if r.Count > 0 && r.Count != n {
			w.violated("the run %s is of %d ticks, and says %d", r.ID, n, r.Count)
		}
		if r.Status == schedule.RunSkipped {
			continue
		}
		if t := f.tasks[r.TaskID]; t == nil {
			w.violated("the run %s has no task", r.ID)
		}
	}
	for at := f.rule.StartAt; at.Before(f.rule.EndAt); at = at.Add(everySec * time.Second) {
		if n := recorded[at.Unix()]; n != 1 {
			w.violated("the tick of %s has %d records", at.Format(time.TimeOnly), n)
		}
		delete(recorded, at.Unix())
	}
	for at := range recorded {
		w.violated("there is a record of %s, when the rule does not tick", time.Unix(at, 0).UTC().Format(time.TimeOnly))
	}
	runs := map[string]bool{}
	for _, t := range f.tasks {
		if t.Type != ticked {
			continue
		}
		if t.Origin == nil || t.Origin.Tick == nil || runs[t.Origin.Tick.Run] {
			w.violated("%s is of no tick, or of one that has another task", t.ID)
			continue
		}
		runs[t.Origin.Tick.Run] = true
	}
}

// checkFlows: every node of a flow ended, and none began before those it waits for had ended.
func (w *world) checkFlows(f *found) {
	nodes := map[string]map[string]*model.Task{}
	for _, t := range f.tasks {
		if t.Type == node {
			if nodes[t.Origin.ID] == nil {
				nodes[t.Origin.ID] = map[string]*model.Task{}
			}
			nodes[t.Origin.ID][t.Origin.Node] = t
		}
	}
	after := map[string][]string{"a": nil, "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}
	for id, doc := range f.flows {
		if doc == nil {
			continue // see waits
		}
		for name, parents := range after {
			t := nodes[id][name]
			if t == nil {
				w.violated("the node %s of the flow %s has no task", name, id)
				continue
			}
			for _, parent := range parents {
				if p := nodes[id][parent]; p != nil && slices.ContainsFunc(w.ran[t.ID], func(x *execution) bool { return x.began.Before(w.end(p)) }) {
					w.violated("the node %s of the flow %s began before %s had ended", name, id, parent)
				}
			}
		}
	}
}

// end is when the execution ended that ended the task: the one of its result, or the last one; zero = nobody knows.
func (w *world) end(t *model.Task) (at time.Time) {
	result, _ := t.Result.StringValueOK()
	for _, x := range w.ran[t.ID] {
		switch {
		case t.Status.Succeeded() && x.name != result, x.ended.Before(at):
		default:
			at = x.ended
		}
	}
	return at
}

// checkPlans: each step of a plan was done once, and none began before the one before it had ended.
func (w *world) checkPlans(f *found) {
	for id, doc := range f.plans {
		if doc == nil {
			continue // see waits
		}
		done, steps := int64(0), map[int64]*model.Task{}
		for _, t := range f.tasks {
			if t.Type == step && t.Origin.ID == id && t.Status.Succeeded() {
				done++
				steps[t.Origin.Step] = t
			}
		}
		for n, t := range steps {
			if last := steps[n-1]; last != nil && slices.ContainsFunc(w.ran[t.ID], func(x *execution) bool { return x.began.Before(w.end(last)) }) {
				w.violated("step %d of the plan %s began before the one before it had ended", n, id)
			}
		}
		if doc.RealRepet != 3 || done != 3 {
			w.violated("the plan %s says that %d of 3 steps succeeded, and %d did", id, doc.RealRepet, done)
		}
	}
}
