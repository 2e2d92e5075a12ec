package integration

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// checkPlans proves, from what is stored alone, that each step of each plan succeeded once with each
// participant, with as many tries as it was told, each in one life of its task; that none began before its time
// or before the step before it had ended; that only those were skipped that were late; that each execution that
// counts has one result, and nothing else has one; and that the plan counts its steps exactly.
func (a *arena) checkPlans(cases []planCase) {
	a.t.Helper()
	var marks []planMark
	cur, err := a.db.Collection("marks").Find(a.t.Context(), bson.D{})
	require.NoError(a.t, err)
	require.NoError(a.t, cur.All(a.t.Context(), &marks))
	began := map[string]bool{}
	for _, m := range marks {
		require.Empty(a.t, m.Early, "%s began too early", m.Task)
		began[m.Exec] = true
	}
	lives, results := a.planLives(), a.planResults()
	require.Len(a.t, results, len(cases), "every plan has results, and nothing else")
	statuses, steps := map[repeat.Status]int{}, 0
	for _, c := range cases {
		p := a.planOver(c)
		statuses[p.Status]++
		want := map[string]string{}
		tasks := map[int64][]*model.Task{}
		for _, t := range lives[p.ID] {
			tasks[t.Origin.Step] = append(tasks[t.Origin.Step], t)
			for id, state := range resultsOfLife(p.ID, t) {
				want[id] = state
			}
		}
		got, ok := map[string]string{}, map[int64]map[string]bool{} // those that succeeded, by step
		for _, r := range results[p.ID] {
			if got[r.ID] = r.State; r.State == stepplan.StateOK {
				if ok[r.Step] == nil {
					ok[r.Step] = map[string]bool{}
				}
				require.False(a.t, ok[r.Step][r.Worker], "%s has one result of step %d of %s", r.Worker, r.Step, p.ID)
				ok[r.Step][r.Worker] = true
			}
		}
		require.Equal(a.t, want, got, "the results of %s", p.ID)
		skipped := a.checkSkipped(p, c, tasks)
		whole, succeeded := true, 0
		for i, ends := range c.ends {
			step := int64(i + 1)
			if skipped[step] {
				continue
			}
			if len(tasks[step]) == 0 && c.cancels {
				require.Empty(a.t, tasks[step+1], "no step of %s is left out", p.ID)
				whole = false
				continue
			}
			done := a.checkStep(p, c, step, ends, tasks[step], began)
			require.True(a.t, done || c.cancels && len(tasks[step+1]) == 0, "step %d of %s succeeded", step, p.ID)
			whole = whole && done
			if done {
				succeeded++
				require.Len(a.t, ok[step], c.participants(), "each participant of step %d of %s has a result", step, p.ID)
			}
		}
		for step := range tasks {
			require.True(a.t, step >= 1 && step <= int64(len(c.ends)), "%s has no step %d", p.ID, step)
		}
		steps += succeeded
		require.EqualValues(a.t, succeeded, p.RealRepet, "the steps of %s that succeeded", p.ID)
		require.True(a.t, whole || p.Status == repeat.StatusCancelled, "%s is %s", p.ID, p.Status)
	}
	require.NotZero(a.t, statuses[repeat.StatusFinish])
	a.t.Logf("plans %v; %d steps succeeded, %d executions began", statuses, steps, len(marks))
}

// checkSkipped proves that a plan has skipped the steps whose times had passed when the step before would have ended,
// had it begun in time, and no others. It returns them.
func (a *arena) checkSkipped(p *repeat.Plan, c planCase, tasks map[int64][]*model.Task) map[int64]bool {
	a.t.Helper()
	skipped := map[int64]bool{}
	if c.spec.NoKeep {
		require.Zero(a.t, p.Skipped)
		return skipped
	}
	at := func(step int64) time.Time {
		return p.Start.Add(time.Duration(step) * time.Duration(c.spec.PlanValue) * time.Second)
	}
	var late []int64 // not decided upon
	last := int64(0) // the last step that has run
	for i := range c.ends {
		step := int64(i + 1)
		if late = append(late, step); len(tasks[step]) == 0 {
			continue
		}
		decided := slices.MinFunc(tasks[step], func(x, y *model.Task) int { return x.CreatedAt.Compare(y.CreatedAt) }).CreatedAt
		passed := passedBy(tasks[last], at(last), decided)
		require.True(a.t, !at(step).Before(passed) || p.Status == repeat.StatusCancelled, "step %d of %s was late at %v", step, p.ID, passed)
		for _, before := range late[:len(late)-1] {
			require.True(a.t, at(before).Before(passed), "step %d of %s was not late at %v", before, p.ID, passed)
			skipped[before] = true
		}
		late, last = nil, step
	}
	if p.Status == repeat.StatusFinish {
		passed := passedBy(tasks[last], at(last), p.EndedAt)
		for _, step := range late {
			require.True(a.t, at(step).Before(passed), "step %d of %s was not late at the end", step, p.ID)
			skipped[step] = true
		}
	}
	require.EqualValues(a.t, len(skipped), p.Skipped, "the times that %s skipped", p.ID)
	if len(c.ends[0]) > 1 { // the pauses between its tries are longer than the interval
		require.True(a.t, skipped[2], "step 2 of %s was late", p.ID)
	}
	return skipped
}

// passedBy is the time before which all times had passed when it was decided what follows a step with those tries: when
// the last one would have ended, had it begun in time, or the time of the decision if that is ten seconds later.
func passedBy(tries []*model.Task, due, decided time.Time) time.Time {
	if len(tries) == 0 {
		return decided
	}
	last := slices.MaxFunc(tries, func(x, y *model.Task) int { return int(x.Origin.Generation - y.Origin.Generation) })
	passed := last.FinishedAt
	var claims []time.Time
	for i := range last.WorkerStates {
		if w := &last.WorkerStates[i]; !w.Unstarted && !w.ClaimedAt.Before(last.CreatedAt) {
			claims = append(claims, w.ClaimedAt)
		}
	}
	if len(claims) > 0 {
		passed = passed.Add(-max(slices.MinFunc(claims, time.Time.Compare).Sub(last.StartTime), 0))
	}
	if !passed.After(due) {
		passed = due.Add(time.Millisecond)
	}
	if ago := decided.Sub(passed); ago < 0 || ago > 10*time.Second {
		return decided
	}
	return passed
}

// checkStep proves what became of a step, by the lives of its task. ok = it succeeded.
func (a *arena) checkStep(p *repeat.Plan, c planCase, step int64, ends string, tries []*model.Task, began map[string]bool) (ok bool) {
	a.t.Helper()
	slices.SortFunc(tries, func(x, y *model.Task) int { return int(x.Origin.Generation - y.Origin.Generation) })
	successes, workers := map[string]bool{}, map[string]bool{} // a success stays, also in the next try
	for try, t := range tries {
		require.EqualValues(a.t, try, t.Origin.Generation, "step %d of %s: each try is one life", step, p.ID)
		for i := range t.WorkerStates {
			if w := &t.WorkerStates[i]; !w.SuccessTime.IsZero() && !successes[w.ExecID] {
				life := &model.Task{ID: model.TaskID(t.Tenant, t.Type, t.Key), Generation: t.Generation}
				require.True(a.t, began[input.ExecutionID(life, w.ExecID)], "the execution %s of %s began", w.ExecID, t.ID)
				successes[w.ExecID], workers[w.WorkerID] = true, true
			}
		}
		if t.Status == model.StatusCancelled {
			require.Equal(a.t, repeat.StatusCancelled, p.Status, "step %d of %s", step, p.ID)
			require.Len(a.t, tries, try+1, "nothing follows")
			return false
		}
		want := model.StatusSuccess
		if try < len(ends) {
			want = model.StatusFailure
		}
		require.Equal(a.t, want, t.Status, "try %d of step %d of %s: %s", try, step, p.ID, t.ErrorInfo)
	}
	whole := len(tries) == len(ends)+1
	require.True(a.t, whole || p.Status == repeat.StatusCancelled && len(tries) <= len(ends), "step %d of %s had %d tries", step, p.ID, len(tries))
	if whole {
		require.Len(a.t, successes, c.participants(), "step %d of %s succeeded once with each participant", step, p.ID)
		require.Len(a.t, workers, c.participants(), "step %d of %s succeeded with different workers", step, p.ID)
	}
	return whole
}

// planLives are the lives of the tasks of plans, by plan.
func (a *arena) planLives() map[string][]*model.Task {
	a.t.Helper()
	lives := map[string]*model.Task{} // by task and generation: an ended life may be in both collections
	for _, coll := range []string{"task_history", "tasks"} {
		cur, err := a.db.Collection(coll).Find(a.t.Context(), bson.D{{Key: "type", Value: planStep.Name()}})
		require.NoError(a.t, err)
		for cur.Next(a.t.Context()) {
			t := new(model.Task)
			require.NoError(a.t, codec.Decode(cur.Current, t))
			lives[fmt.Sprint(t.Key, " ", t.Generation)] = t
		}
		require.NoError(a.t, cur.Err())
	}
	out := map[string][]*model.Task{}
	for _, t := range lives {
		out[t.Origin.ID] = append(out[t.Origin.ID], t)
	}
	return out
}

// planResults are the results that are stored, by plan, but for those that say that nobody serves a
// station.
func (a *arena) planResults() map[string][]repeat.Result {
	a.t.Helper()
	cur, err := a.db.Collection("plan_results").Find(a.t.Context(), bson.D{{Key: "state", Value: bson.D{{Key: "$ne", Value: stepplan.StateNoWorker}}}})
	require.NoError(a.t, err)
	var all []repeat.Result
	require.NoError(a.t, cur.All(a.t.Context(), &all))
	out := map[string][]repeat.Result{}
	for _, r := range all {
		if r.State == stepplan.StateOK {
			require.Equal(a.t, planOutput(r.PlanID, r.Step), r.Result.StringValue())
		}
		out[r.Plan] = append(out[r.Plan], r)
	}
	return out
}

// planOver is a plan as it is in the history. It proves that nothing else is left of it.
func (a *arena) planOver(c planCase) *repeat.Plan {
	a.t.Helper()
	var raws [2]bson.M
	var over, left repeat.Plan
	for i, coll := range []string{"plan_history", "plans"} {
		res := a.db.Collection(coll).FindOne(a.t.Context(), bson.D{{Key: "_id", Value: "-/" + c.spec.PlanID}})
		raw, err := res.Raw()
		require.NoError(a.t, err, "%s in %s", c.spec.PlanID, coll)
		require.NoError(a.t, bson.Unmarshal(raw, &raws[i]))
		require.NoError(a.t, codec.Decode(raw, []*repeat.Plan{&over, &left}[i]))
	}
	require.WithinDuration(a.t, over.EndedAt.Add(90*24*time.Hour), over.DeleteAt, time.Hour)
	require.WithinDuration(a.t, over.EndedAt.Add(10*time.Minute), left.DeleteAt, 5*time.Minute, "it leaves soon")
	for _, raw := range raws {
		delete(raw, "delete_at")
	}
	require.Equal(a.t, raws[0], raws[1], "what is in the history is the plan as it ended")
	require.Empty(a.t, over.Planned)
	if over.Status == repeat.StatusFinish {
		require.True(a.t, over.Step == int64(len(c.ends)) || !c.spec.NoKeep, "%s ended with step %d", c.spec.PlanID, over.Step)
		require.Equal(a.t, stepplan.StateOK, over.LastState)
		return &over
	}
	require.Equal(a.t, repeat.StatusCancelled, over.Status)
	require.True(a.t, c.cancels)
	return &over
}

// awaitQuietPlans waits until every plan is over and nothing is left to do, as long as that goes on.
func (a *arena) awaitQuietPlans() {
	a.t.Helper()
	exists := bson.D{{Key: "$exists", Value: true}}
	a.awaitNone("marks", []left{
		{"plans that run", "plans", bson.D{{Key: "delete_at", Value: bson.D{{Key: "$exists", Value: false}}}}},
		{"plans with plans", "plans", bson.D{{Key: "planned_at", Value: exists}}},
		{"tasks that go on", "tasks", bson.D{{Key: "finished_at", Value: bson.D{{Key: "$exists", Value: false}}}, noSentinel}},
		{"tasks with an outbox", "tasks", bson.D{{Key: "outbox_at", Value: exists}, noSentinel}},
		{"past lives with an outbox", "task_history", bson.D{{Key: "outbox_at", Value: exists}}},
	})
}

// resultsOfLife are the results that one life of a step's task leaves, as its executions say.
func resultsOfLife(plan string, t *model.Task) map[string]string {
	out := map[string]string{}
	if !t.Status.Ended() {
		return out
	}
	of := func(which string) string { return fmt.Sprintf("%s/%d/%s", plan, t.Origin.Step, which) }
	by := func(w model.WorkerState) string { return of(input.ShownExecID(w.ExecID)) }
	for _, w := range t.WorkerStates {
		switch {
		case !w.SuccessTime.IsZero():
			out[by(w)] = stepplan.StateOK
		case w.FailTime.IsZero(), w.Unstarted, w.FailKind == "released":
		case w.FailKind == "plan_error":
			out[by(w)] = stepplan.StatePlanError
		case w.FailKind == "cancelled":
			out[by(w)] = stepplan.StateCancelled
		default:
			out[by(w)] = stepplan.StateError
		}
	}
	if len(out) == 0 {
		out[of(fmt.Sprintf("none-%d", t.Origin.Generation))] = map[bool]string{true: stepplan.StateCancelled, false: stepplan.StateError}[t.Status == model.StatusCancelled]
	}
	return out
}
