package promises

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// deployment is one in which all went well.
type deployment struct {
	Stored
	asked Asked
	ran   Ran
}

// ended adds a task that ended well, a second after it began.
func (d *deployment) ended(id, typ string, began time.Time, origin *model.Origin) *model.Task {
	exec := id + "@1"
	result := bson.RawValue{}
	result.Type, result.Value, _ = bson.MarshalValue(exec)
	t := &model.Task{ID: id, Type: typ, Status: model.StatusSuccess, Origin: origin, Result: result}
	t.WorkerStates = []model.WorkerState{{ExecID: exec, SuccessTime: began.Add(time.Second)}}
	d.Tasks[id], d.ran[id] = t, []*Execution{{Name: exec, Began: began, Ended: began.Add(time.Second)}}
	return t
}

func well() *deployment {
	d := &deployment{asked: NewAsked(), ran: Ran{}, Stored: Stored{
		Tasks: map[string]*model.Task{}, Rule: schedule.Rule{StartAt: noon, EndAt: noon.Add(2 * every)},
		Flows: map[string]*graph.Flow{"-/f": {Status: graph.StatusFinish}},
		Plans: map[string]*repeat.Plan{"-/p": {Status: repeat.StatusFinish, RealRepet: Steps}},
	}}
	d.asked.Tasks["sent"] = true
	d.ended("sent", Work, noon, nil)
	for id, at := range map[string]time.Duration{"a": 0, "b": 1, "c": 1, "d": 2} {
		d.ended("node "+id, Node, noon.Add(at*time.Minute), &model.Origin{ID: "-/f", Node: id})
	}
	for n := range int64(Steps) {
		d.ended(fmt.Sprint("step ", n+1), Step, noon.Add(time.Duration(n)*time.Minute), &model.Origin{ID: "-/p", Step: n + 1})
	}
	for n := range 2 {
		node, id := LinkOf("g", "s.1", n)
		d.ended(id, Link, noon.Add(time.Duration(n)*time.Minute), &model.Origin{ID: "links/g", Node: node.ID})
	}
	for n := range 2 {
		id := fmt.Sprint("tick ", n)
		d.ended(id, Ticked, noon, &model.Origin{Tick: &model.Tick{Run: id}})
		d.Runs = append(d.Runs, schedule.Run{ID: id, Nominal: noon.Add(time.Duration(n) * every), Status: schedule.RunSuccess, TaskID: id})
	}
	return d
}

// Each promise that is broken is found: a check that finds nothing proves nothing.
func TestEachBrokenPromiseIsFound(t *testing.T) {
	for want, breakIt := range map[string]func(d *deployment){
		"":                                    func(*deployment) {},
		"the task sent is lost":               func(d *deployment) { delete(d.Tasks, "sent"); delete(d.ran, "sent") },
		"sent ran 1 times, and is not stored": func(d *deployment) { delete(d.Tasks, "sent"); delete(d.asked.Tasks, "sent") },
		"the task sent is Executing":          func(d *deployment) { d.Tasks["sent"].Status = model.StatusExecuting },
		"sent is Success by 2 executions": func(d *deployment) {
			d.Tasks["sent"].WorkerStates = append(d.Tasks["sent"].WorkerStates, model.WorkerState{ExecID: "sent@2", SuccessTime: noon})
		},
		`the result of sent is "sent@1", which no execution returned`: func(d *deployment) { d.ran["sent"][0].Err = "it failed" },
		"sent is Failure after 0 errors: ":                            func(d *deployment) { d.Tasks["sent"].Status = model.StatusFailure },
		"sent has 1 errors, its handler failed 0 times":               func(d *deployment) { d.Tasks["sent"].ErrorCount = 1 },
		"sent ended as Cancelled:  ":                                  func(d *deployment) { d.Tasks["sent"].Status = model.StatusCancelled },
		"the tick of 12:00:05 has 0 records":                          func(d *deployment) { d.Runs[1].Nominal = noon; d.Runs = d.Runs[:1] },
		"the tick of 12:00:00 has 2 records":                          func(d *deployment) { d.Runs = append(d.Runs, d.Runs[0]) },
		"there is a record of 12:00:10, when the rule does not tick": func(d *deployment) {
			d.Runs = append(d.Runs, schedule.Run{Nominal: noon.Add(2 * every), Status: schedule.RunSkipped})
		},
		"the run tick 0 is of 1 ticks, and says 2": func(d *deployment) { d.Runs[0].Count = 2 },
		"the run tick 0 has no task":               func(d *deployment) { d.Runs[0].TaskID = "none" },
		"tick 1 is of no tick, or of one that has another task": func(d *deployment) {
			d.Tasks["tick 1"].Origin = nil
		},
		"the run tick 0 is RUNNING":                                       func(d *deployment) { d.Runs[0].Status = schedule.RunRunning },
		"the node d of the flow -/f has no task":                          func(d *deployment) { delete(d.Tasks, "node d"); delete(d.ran, "node d") },
		"the node d of the flow -/f began before c had ended":             func(d *deployment) { d.ran["node c"][0].Ended = noon.Add(time.Hour) },
		"the flow -/f is lost":                                            func(d *deployment) { d.Flows["-/f"] = nil },
		"the flow -/f is RUNNING":                                         func(d *deployment) { d.Flows["-/f"].Status = graph.StatusRunning },
		"step 2 of the plan -/p began before the one before it had ended": func(d *deployment) { d.ran["step 2"][0].Began = noon },
		"the plan -/p says that 2 of 3 steps succeeded, and 3 did":        func(d *deployment) { d.Plans["-/p"].RealRepet = 2 },
		"link 1 of links/g s_1 began before the one before it had ended": func(d *deployment) {
			_, id := LinkOf("g", "s.1", 1)
			d.ran[id][0].Began = noon
		},
		"the plan -/p is lost":  func(d *deployment) { d.Plans["-/p"] = nil },
		"the plan -/p is ERROR": func(d *deployment) { d.Plans["-/p"].Status = repeat.StatusError },
	} {
		t.Run(want, func(t *testing.T) {
			d := well()
			breakIt(d)
			found := []string{d.Open(d.asked, noon.Add(time.Hour))}
			d.Check(d.ran, func(_, format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) })
			require.Contains(t, found, want)
			if want == "" {
				require.Len(t, found, 1)
			}
		})
	}
}

func TestLinksAreValid(t *testing.T) {
	node, _ := LinkOf("0", "sender-a.1-abc", 3)
	require.NoError(t, flow.ValidateAppend(Links, "0", node))
}

func TestATickMayStillComeUntilTheRuleHasEnded(t *testing.T) {
	require.Equal(t, "the rule may tick", well().Open(NewAsked(), noon))
}
