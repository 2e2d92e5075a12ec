package integration

import (
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// seenRun is a record as the checker reads it, and seenTask a task.
type seenRun struct {
	ID      string    `bson:"_id"`
	Rule    string    `bson:"rule_id"`
	Nominal time.Time `bson:"nominal"`
	Last    time.Time `bson:"last"`
	Count   int64     `bson:"count"`
	Status  string    `bson:"status"`
	Reason  string    `bson:"reason"`
	Task    string    `bson:"task_id"`
}

type seenTask struct {
	ID         string    `bson:"_id"`
	TaskID     string    `bson:"task_id"` // in the history
	Generation int64     `bson:"generation"`
	Status     string    `bson:"status"`
	CreatedAt  time.Time `bson:"created_at"`
	FinishedAt time.Time `bson:"finished_at"`
	Origin     struct {
		Rule string `bson:"id"`
		Tick struct {
			Run     string    `bson:"run"`
			Nominal time.Time `bson:"nominal"`
		} `bson:"tick"`
	} `bson:"origin"`
}

// checkTicks proves, from what is stored alone, that each second of each rule from its first
// tick to the end is covered by one record, and has at most one task.
func (a *arena) checkTicks(rules map[string]tickRule, end time.Time) {
	a.t.Helper()
	tasks := a.seenTasks()
	perTick := map[string]int{} // tasks
	for _, task := range tasks {
		perTick[task.Origin.Rule+" "+strconv.FormatInt(task.Origin.Tick.Nominal.Unix(), 10)]++
	}
	for tick, n := range perTick {
		require.Equal(a.t, 1, n, "tasks of the tick %s", tick)
	}
	covered, kinds, told := map[string]map[int64]int{}, map[string]int{}, map[string]bool{}
	var overlaps []seenRun
	cur, err := a.db.Collection("periodic_runs").Find(a.t.Context(), bson.D{})
	require.NoError(a.t, err)
	for cur.Next(a.t.Context()) {
		var r seenRun
		require.NoError(a.t, cur.Decode(&r))
		kinds[r.Status]++
		if r.Reason == "overlap" {
			overlaps = append(overlaps, r)
		}
		if covered[r.Rule] == nil {
			covered[r.Rule] = map[int64]int{}
		}
		last := r.Nominal
		if r.Count > 1 {
			last = r.Last
		}
		for at := r.Nominal.Unix(); at <= last.Unix(); at++ {
			covered[r.Rule][at]++
		}
		if r.Count > 0 {
			require.Equal(a.t, last.Unix()-r.Nominal.Unix()+1, r.Count, "ticks of the span %s", r.ID)
		}
		task, there := tasks[r.Task]
		switch r.Status {
		case "SUCCESS":
			require.Equal(a.t, "Success", task.Status, "the task of %s", r.ID)
		case "FAILED":
			require.Equal(a.t, "Failure", task.Status, "the task of %s", r.ID)
		case "CANCELED": // while it waited it has no task
			require.True(a.t, r.Task == "" || there && task.Status == "Cancelled", "the task of %s is %s", r.ID, task.Status)
		case "SKIPPED":
			require.Empty(a.t, r.Task, "task of %s", r.ID)
		default:
			require.Fail(a.t, "a record does not say how its run ended", "%+v; its task: %+v", r, task)
		}
		if there {
			require.Equal(a.t, r.ID, task.Origin.Tick.Run)
			told[r.Task] = true
		}
	}
	require.NoError(a.t, cur.Err())
	for id := range tasks {
		require.True(a.t, told[id], "no record tells of the task %s", id)
	}
	ticks := 0
	for id, rule := range rules {
		for at := rule.first; at.Before(end); at = at.Add(time.Second) {
			ticks++
			require.Equal(a.t, 1, covered[id][at.Unix()], "records of the tick %v of rule %s", at, id)
		}
		require.Len(a.t, covered[id], int(end.Sub(rule.first)/time.Second), "seconds with a record of rule %s", id)
	}
	require.Len(a.t, covered, len(rules), "rules with records")
	a.checkLimits(rules, tasks)
	a.checkOverlaps(overlaps, tasks)
	require.NotZero(a.t, kinds["SUCCESS"])
	a.t.Logf("%d ticks, records %v, %d tasks", ticks, kinds, len(tasks))
}

// checkOverlaps proves that no tick was skipped for a run that had long ended. An end is
// stamped before it is written, and what lies between depends on the machine: so long.
func (a *arena) checkOverlaps(skipped []seenRun, tasks map[string]seenTask) {
	a.t.Helper()
	const written = 5 * time.Second
	byRule := map[string][]seenTask{}
	for _, task := range tasks {
		byRule[task.Origin.Rule] = append(byRule[task.Origin.Rule], task)
	}
	for _, r := range skipped {
		require.True(a.t, slices.ContainsFunc(byRule[r.Rule], func(task seenTask) bool {
			return task.Origin.Tick.Nominal.Before(r.Nominal) && task.FinishedAt.After(r.Nominal.Add(-written))
		}), "nothing was in the way of %s", r.ID)
	}
}

// checkLimits proves that no more runs of a rule were under way at once than its policies
// allow. Each process knows the database's time to a fraction of a second.
func (a *arena) checkLimits(rules map[string]tickRule, tasks map[string]seenTask) {
	a.t.Helper()
	const known = 500 * time.Millisecond
	type change struct {
		at time.Time
		by int
	}
	changes := map[string][]change{}
	for _, task := range tasks {
		if end := task.FinishedAt.Add(-known); end.After(task.CreatedAt) {
			changes[task.Origin.Rule] = append(changes[task.Origin.Rule], change{task.CreatedAt, 1}, change{end, -1})
		}
	}
	for id, rule := range rules {
		limit := tickLimits[rule.kind]
		if limit == 0 {
			continue
		}
		of := changes[id]
		slices.SortFunc(of, func(x, y change) int {
			if c := x.at.Compare(y.at); c != 0 {
				return c
			}
			return x.by - y.by
		})
		under := 0
		for _, c := range of {
			under += c.by
			require.LessOrEqual(a.t, under, limit, "runs at once of rule %s, of kind %d, at %v", id, rule.kind, c.at)
		}
	}
}

// seenTasks are all lives of all tasks by id; one that is in the history, too, counts once,
// and no task may have two lives.
func (a *arena) seenTasks() map[string]seenTask {
	a.t.Helper()
	out := map[string]seenTask{}
	for _, collection := range []string{"tasks", "task_history"} {
		cur, err := a.db.Collection(collection).Find(a.t.Context(), bson.D{noSentinel})
		require.NoError(a.t, err)
		for cur.Next(a.t.Context()) {
			var task seenTask
			require.NoError(a.t, cur.Decode(&task))
			if task.TaskID != "" {
				task.ID = task.TaskID
			}
			if other, there := out[task.ID]; there {
				require.Equal(a.t, other.Generation, task.Generation, "lives of the task %s", task.ID)
			}
			out[task.ID] = task
		}
		require.NoError(a.t, cur.Err())
	}
	return out
}
