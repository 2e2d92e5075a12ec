package promises

import (
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Execution is one run of a handler.
type Execution struct {
	Name  string // its id, which is also its result
	Began time.Time
	Ended time.Time // zero = it has not, or nobody knows
	Err   string    // "" = it succeeded
}

func (x *Execution) succeeded() bool { return !x.Ended.IsZero() && x.Err == "" }

// Ran are the executions of each task, by its id.
type Ran map[string][]*Execution

// check is one check of all promises.
type check struct {
	*Stored
	ran Ran
	// violated is told of the promises that were broken, with the task that it is about, if it is about one.
	violated func(task, format string, values ...any)
}

// Check looks whether the promises were kept. It tells of those that were broken, with the id of the
// task ("" = none).
func (s *Stored) Check(ran Ran, violated func(task, format string, values ...any)) {
	c := check{s, ran, violated}
	for id, t := range s.Tasks {
		c.task(id, t)
	}
	for id, executions := range ran {
		if s.Tasks[id] == nil {
			violated(id, "%s ran %d times, and is not stored", id, len(executions))
		}
	}
	c.ticks()
	c.flows()
	c.plans()
	c.links()
}

// CheckTicks is the part of Check that is about the rule.
func (s *Stored) CheckTicks(violated func(task, format string, values ...any)) {
	c := check{s, nil, violated}
	c.ticks()
}

// CheckFlows is the part of Check that is about flows. It does not hold where people begin nodes again.
func (s *Stored) CheckFlows(ran Ran, violated func(task, format string, values ...any)) {
	c := check{s, ran, violated}
	c.flows()
}

// CheckPlans is the part of Check that is about plans.
func (s *Stored) CheckPlans(ran Ran, violated func(task, format string, values ...any)) {
	c := check{s, ran, violated}
	c.plans()
}

// task: the result is that of one execution that succeeded, and no task had more errors than it may.
func (c *check) task(id string, t *model.Task) {
	won := 0
	for i := range t.WorkerStates {
		if !t.WorkerStates[i].SuccessTime.IsZero() {
			won++
		}
	}
	failed := 0
	for _, x := range c.ran[id] {
		if !x.Ended.IsZero() && x.Err != "" {
			failed++
		}
	}
	switch t.Status { //nolint:exhaustive // no task ends otherwise
	case model.StatusSuccess:
		if won != 1 {
			c.violated(id, "%s is Success by %d executions", id, won)
		}
		if c.winner(t) == nil {
			c.violated(id, "the result of %s is %q, which no execution returned", id, Result(t))
		}
	case model.StatusFailure:
		if failed <= MaxErrors {
			c.violated(id, "%s is Failure after %d errors: %s", id, failed, t.ErrorInfo)
		}
	default:
		c.violated(id, "%s ended as %s: %s %s", id, t.Status, t.Remark, t.ErrorInfo)
	}
	if t.ErrorCount > MaxErrors+1 || t.ErrorCount > failed {
		c.violated(id, "%s has %d errors, its handler failed %d times", id, t.ErrorCount, failed)
	}
}

// Result is the name of the execution that the task's result is of; "" = it has none.
func Result(t *model.Task) string {
	result, _ := t.Result.StringValueOK()
	return result
}

// winner is the execution that the task's result is of; nil = none returned it.
func (c *check) winner(t *model.Task) *Execution {
	of := c.ran[t.ID]
	if i := slices.IndexFunc(of, func(x *Execution) bool { return x.Name == Result(t) && x.succeeded() }); i >= 0 {
		return of[i]
	}
	return nil
}

// ticks: each tick has one record, and each that was not skipped one task.
func (c *check) ticks() {
	recorded := map[int64]int{}
	for i := range c.Runs {
		r := &c.Runs[i]
		last := r.Nominal
		if !r.Last.IsZero() {
			last = r.Last
		}
		n := int64(0)
		for at := r.Nominal; !at.After(last); at = at.Add(every) {
			recorded[at.Unix()]++
			n++
		}
		if r.Count > 0 && r.Count != n {
			c.violated("", "the run %s is of %d ticks, and says %d", r.ID, n, r.Count)
		}
		if r.Status == schedule.RunSkipped {
			continue
		}
		if t := c.Tasks[r.TaskID]; t == nil {
			c.violated(r.TaskID, "the run %s has no task", r.ID)
		}
	}
	for at := c.Rule.StartAt; at.Before(c.Rule.EndAt); at = at.Add(every) {
		if n := recorded[at.Unix()]; n != 1 {
			c.violated("", "the tick of %s has %d records", at.Format(time.TimeOnly), n)
		}
		delete(recorded, at.Unix())
	}
	for at := range recorded {
		c.violated("", "there is a record of %s, when the rule does not tick", time.Unix(at, 0).UTC().Format(time.TimeOnly))
	}
	runs := map[string]bool{}
	for _, t := range c.Tasks {
		if t.Type != Ticked {
			continue
		}
		if t.Origin == nil || t.Origin.Tick == nil || runs[t.Origin.Tick.Run] {
			c.violated(t.ID, "%s is of no tick, or of one that has another task", t.ID)
			continue
		}
		runs[t.Origin.Tick.Run] = true
	}
}

// flows: every node of a flow ended, and none began before those it waits for had ended.
func (c *check) flows() {
	nodes := map[string]map[string]*model.Task{}
	for _, t := range c.Tasks {
		if t.Type == Node {
			if nodes[t.Origin.ID] == nil {
				nodes[t.Origin.ID] = map[string]*model.Task{}
			}
			nodes[t.Origin.ID][t.Origin.Node] = t
		}
	}
	for id, doc := range c.Flows {
		if doc == nil {
			continue // see Open
		}
		for name, parents := range after {
			t := nodes[id][name]
			if t == nil {
				c.violated("", "the node %s of the flow %s has no task", name, id)
				continue
			}
			for _, parent := range parents {
				if p := nodes[id][parent]; p != nil && c.beganBefore(t, c.end(p)) {
					c.violated(t.ID, "the node %s of the flow %s began before %s had ended", name, id, parent)
				}
			}
		}
	}
}

// plans: each step of a plan was done once, and none began before the one before it had ended.
func (c *check) plans() {
	done, steps := map[string]int{}, map[string]map[int64]*model.Task{}
	for _, t := range c.Tasks {
		if t.Type == Step && t.Status.Succeeded() {
			done[t.Origin.ID]++
			if steps[t.Origin.ID] == nil {
				steps[t.Origin.ID] = map[int64]*model.Task{}
			}
			steps[t.Origin.ID][t.Origin.Step] = t
		}
	}
	for id, doc := range c.Plans {
		if doc == nil {
			continue // see Open
		}
		for n, t := range steps[id] {
			if last := steps[id][n-1]; last != nil && c.beganBefore(t, c.end(last)) {
				c.violated(t.ID, "step %d of the plan %s began before the one before it had ended", n, id)
			}
		}
		if doc.RealRepet != Steps || done[id] != Steps {
			c.violated("", "the plan %s says that %d of %d steps succeeded, and %d did", id, doc.RealRepet, Steps, done[id])
		}
	}
}

// links: the nodes that a sender appended to a stream ran in its order, and each began when the one before it had ended.
func (c *check) links() {
	of := map[string]map[int]*model.Task{}
	for _, t := range c.Tasks {
		if t.Type != Link {
			continue
		}
		sender, n := senderOf(t)
		if of[sender] == nil {
			of[sender] = map[int]*model.Task{}
		}
		of[sender][n] = t
	}
	for sender, links := range of {
		for n, t := range links {
			if last := links[n-1]; last != nil && c.beganBefore(t, c.end(last)) {
				c.violated(t.ID, "link %d of %s began before the one before it had ended", n, sender)
			}
		}
	}
}

func (c *check) beganBefore(t *model.Task, at time.Time) bool {
	return slices.ContainsFunc(c.ran[t.ID], func(x *Execution) bool { return x.Began.Before(at) })
}

// End is when the execution ended that ended the task: the one of its result, or the last whose failure counted; zero =
// nobody knows. A handler may end long after its execution was taken over, which counts for nothing.
func (r Ran) End(t *model.Task) (at time.Time) {
	c := check{ran: r}
	return c.end(t)
}

// end is [Ran.End].
func (c *check) end(t *model.Task) (at time.Time) {
	if t.Status.Succeeded() {
		if x := c.winner(t); x != nil {
			return x.Ended
		}
		return at
	}
	counts := func(x *Execution) bool {
		return slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool { return w.ExecID == x.Name && w.FailKind == failkind.Error })
	}
	for _, x := range c.ran[t.ID] {
		if x.Ended.After(at) && counts(x) {
			at = x.Ended
		}
	}
	return at
}
