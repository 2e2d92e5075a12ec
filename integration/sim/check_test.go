package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// found is what is stored.
type found struct {
	*promises.Stored
	streams map[string]*graph.Flow
	lives   []*model.Task   // of all tasks, past ones too
	nodes   []graph.Node    // the records of the stream
	orders  map[string]bool // by the ids of their tasks
}

func read[T any](ctx context.Context, w *world, coll string, filter bson.D) (out []T, err error) {
	cur, err := w.observer.Database("sim").Collection(coll).Find(ctx, filter)
	if err == nil {
		err = cur.All(ctx, &out)
	}
	return out, err
}

// documents are all of a collection but the sentinel of the schema.
var documents = bson.D{{Key: "_id", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "^~"}}}}}

func (w *world) read() (f *found, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f = &found{streams: map[string]*graph.Flow{}, orders: map[string]bool{}}
	if f.Stored, err = promises.Read(ctx, w.observer.Database("sim"), w.asked); err != nil {
		return nil, err
	}
	for _, t := range f.Tasks {
		f.lives = append(f.lives, t)
	}
	past, err := read[bson.Raw](ctx, w, "task_history", documents)
	if err != nil {
		return nil, err
	}
	for _, raw := range past {
		t, err := store.Decode(raw)
		if err != nil {
			return nil, err
		}
		// Of a life that is in both, the task counts: a retry that was crossed leaves an earlier copy.
		if now := f.Tasks[model.TaskID(t.Tenant, t.Type, t.Key)]; now == nil || now.Generation != t.Generation {
			f.lives = append(f.lives, t)
		}
	}
	if err := w.readUnanswered(ctx, f); err != nil {
		return nil, err
	}
	if f.nodes, err = read[graph.Node](ctx, w, "flow_nodes", bson.D{{Key: "flow_id", Value: theStream}}); err != nil {
		return nil, err
	}
	orders, err := read[bson.M](ctx, w, "orders", bson.D{})
	for _, o := range orders {
		f.orders[model.TaskID("", work, fmt.Sprint(o["_id"]))] = true
	}
	return f, err
}

// readUnanswered reads the flows and plans whose sender died before it was answered, too.
func (w *world) readUnanswered(ctx context.Context, f *found) error {
	flows, err := read[graph.Flow](ctx, w, "flows", documents)
	if err != nil {
		return err
	}
	for i := range flows {
		if doc := &flows[i]; doc.Kind == graph.KindStream {
			f.streams[doc.ID] = doc
		} else {
			f.Flows[doc.ID] = doc
		}
	}
	plans, err := read[repeat.Plan](ctx, w, "plans", documents)
	for i := range plans {
		f.Plans[plans[i].ID] = &plans[i]
	}
	return err
}

// settled waits until everything has ended.
func (w *world) settled() *found {
	healed := time.Now()
	for {
		time.Sleep(3 * time.Second)
		f, err := w.read()
		why := ""
		if err == nil {
			w.tidies(f)
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
			w.tells(f)
			return f
		}
	}
}

// tells notes how flows stand, for those who look for the cause of what does not end.
func (w *world) tells(f *found) {
	for id, doc := range f.Flows {
		if doc == nil {
			continue
		}
		w.note("", "the flow %s is %s, rev %d: %s; planned: %+v", id, doc.Status, doc.Rev, doc.Reason, doc.Planned)
		for i, s := range doc.States {
			t := f.Tasks["-/"+node+"/flow:"+doc.Key+":"+doc.Nodes[i].ID]
			if t == nil {
				t = &model.Task{}
			}
			w.note("", "  node %s, life %d, is %s: %s; its task is %s, rev %d, of %+v, outbox %+v", doc.Nodes[i].ID, s.Life, s.Status, s.Reason, t.Status, t.Rev, t.Origin, t.Outbox)
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
	for id, t := range f.Tasks {
		if t.Status == model.StatusPending || t.Status == model.StatusCompleted {
			return "the task " + id + " is " + string(t.Status)
		}
	}
	if why := w.streamWaits(f); why != "" {
		return why
	}
	return f.Open(w.asked, w.db.now())
}

// check looks whether the promises were kept.
func (w *world) check(f *found) {
	if f == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, t := range f.Tasks {
		w.checkTask(id, t)
	}
	for id, ran := range w.ran {
		if f.Tasks[id] == nil {
			w.violated("%s ran %d times, and is not stored", id, len(ran))
		}
	}
	told := func(_, format string, values ...any) { w.violated(format, values...) }
	if w.ticks {
		f.CheckTicks(told)
		w.checkEditions(f)
	}
	if !w.people { // who begin nodes again
		f.CheckFlows(w.executions(), told)
	}
	f.CheckPlans(w.executions(), told)
	w.checkStream(f)
	w.checkCallbacks(f)
	w.checkOrders(f)
}

// checkTask: the result is that of one execution that succeeded and that nobody had taken over, no task had more errors
// than it may, and what people said is so.
func (w *world) checkTask(id string, t *model.Task) {
	if input.OwnType(t.Type) { // of the scheduler itself: a bulk job, a delivery
		if !t.Status.Succeeded() {
			w.violated("%s is %s: %s", id, t.Status, t.ErrorInfo)
		}
		return
	}
	most := w.failures(t)
	switch t.Status { //nolint:exhaustive // no task ends otherwise
	case model.StatusSuccess:
		w.checkSuccess(t)
	case model.StatusFailure:
		if most <= budgetOf(t) {
			w.violated("%s is Failure after %d errors: %s", id, most, t.ErrorInfo)
		}
	case model.StatusCancelled:
		if !w.mayCancel[id] {
			w.violated("%s is Cancelled, and nobody has asked for that", id)
		}
	case model.StatusManuallyProcessed:
		if !w.mayResolve[id] && !w.mayResolve[allOf(t.Type)] {
			w.violated("%s is ManuallyProcessed, and nobody has asked for that", id)
		}
	default:
		w.violated("%s ended as %s: %s %s", id, t.Status, t.Remark, t.ErrorInfo)
	}
	if t.ErrorCount > budgetOf(t)+1 || t.ErrorCount > most {
		w.violated("%s has %d errors, its handler failed %d times", id, t.ErrorCount, most)
	}
	if was, known := w.final[lifeOf(t)]; known && was.status != t.Status {
		w.violated("%s was %s, and is %s in the same life", id, was.status, t.Status)
	}
	if want, changed := w.priority[lifeOf(t)]; changed && t.Priority != want {
		w.violated("%s has the priority %d, and was given %d", id, t.Priority, want)
	}
	w.checkOutside(t)
}

// budgetOf is how many errors the task may have before it ends.
func budgetOf(t *model.Task) int {
	if r := t.Options.Retry; r != nil && r.MaxErrors != nil {
		return *r.MaxErrors
	}
	return maxErrors
}

// failures counts the executions of the life that failed, or may have.
func (w *world) failures(t *model.Task) (most int) {
	for _, x := range w.ran[t.ID] {
		if x.life() == lifeOf(t) && !x.Ended.IsZero() && (x.unsure || x.Err != "" && x.Err != errGivenBack.Error()) {
			most++
		}
	}
	return most
}

// checkSuccess: the result is that of one execution, which had not been taken over when it ended.
func (w *world) checkSuccess(t *model.Task) {
	won := 0
	for i := range t.WorkerStates {
		if !t.WorkerStates[i].SuccessTime.IsZero() {
			won++
		}
	}
	if won != 1 {
		w.violated("%s is Success by %d executions", t.ID, won)
	}
	result, _ := t.Result.StringValueOK()
	i := slices.IndexFunc(w.ran[t.ID], func(x *execution) bool { return x.Name == result && !x.Ended.IsZero() && x.Err == "" })
	if i < 0 {
		w.violated("the result of %s is %q, which no execution returned", t.ID, result)
		return
	}
	winner := w.ran[t.ID][i]
	for _, x := range w.ran[t.ID] {
		if x.token.String() > winner.token.String() && x.Began.Before(winner.Ended) {
			w.violated("the result of %s is that of %s, which %s had taken over before it ended", t.ID, winner.p.name, x.p.name)
		}
	}
}

// executions are those of each task, as package promises wants them.
func (w *world) executions() promises.Ran {
	out := promises.Ran{}
	for id, ran := range w.ran {
		for _, x := range ran {
			out[id] = append(out[id], &x.Execution)
		}
	}
	return out
}

// checkEditions: a task of a tick that came after an edit was told so.
func (w *world) checkEditions(f *found) {
	for _, t := range f.Tasks {
		if t.Type != ticked || t.Origin == nil || t.Origin.Tick == nil {
			continue
		}
		has := t.Args.Document().Lookup("edition").AsInt64()
		for n, at := range w.edited {
			if t.Origin.Tick.Nominal.After(at) && has < int64(n) {
				w.violated("%s has edition %d, and edition %d was answered at %s", t.ID, has, n, at.Format(time.TimeOnly))
			}
		}
	}
}
