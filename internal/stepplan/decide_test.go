package stepplan

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

var dawn = time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)

// begun is a plan of steps a minute apart, with its first step.
func begun(t *testing.T, change ...func(*repeat.Spec)) *repeat.Plan {
	t.Helper()
	s := repeat.Spec{Station: "s", PlanType: repeat.Minute, PlanValue: 1, PlanRepet: 3, NoKeep: true, Messages: []any{"m"}}
	for _, f := range change {
		f(&s)
	}
	p, err := Build(&s, "p", dawn)
	require.NoError(t, err)
	p, err = Begin(p, dawn)
	require.NoError(t, err)
	return p
}

// bare is the plan as it is when what it plans is carried out.
func bare(p *repeat.Plan) *repeat.Plan {
	c := *p
	c.Planned, c.PlannedAt = nil, time.Time{}
	return &c
}

// taskOf is the task of the plan's step.
func taskOf(p *repeat.Plan) *model.Task {
	return lifecycle.NewTask(Draft(p, &repeat.Planned{At: p.PlanTime}), dawn)
}

func does(p *repeat.Plan) (out []repeat.Action) {
	for _, pl := range p.Planned {
		if pl.Do == DoSend {
			out = append(out, "send "+repeat.Action(Draft(p, &pl).Key))
		} else {
			out = append(out, pl.Do)
		}
	}
	return out
}

func TestTheTaskOfAStepHasItsTimeAndItsLease(t *testing.T) {
	p := begun(t, func(s *repeat.Spec) { s.PlanExecTimeout = time.Minute })
	require.Equal(t, []repeat.Action{"send p@1"}, does(p))
	task := taskOf(p)
	require.Equal(t, dawn.Add(time.Minute), task.StartTime)
	require.Equal(t, time.Minute, task.Options.WorkerTimeout)
	require.Equal(t, &model.Origin{Kind: "plan", ID: "-/p", Step: 1, CreatedAt: dawn}, task.Origin)
	require.Equal(t, dawn.Add(2*time.Minute-lookAhead), p.LookAt, "by then engines look for its end")
}

func TestTheCallerOfAPlanIsTheCreatorOfTheTasksOfItsSteps(t *testing.T) {
	p := begun(t, func(s *repeat.Spec) { s.Caller = strings.Repeat("x", 200) })
	d := Draft(p, &p.Planned[0])
	require.NoError(t, d.Validate())
	require.Equal(t, p.Caller, d.Creator)
}

func TestTheArgumentsOfAStepSayHowThePlanIsDoing(t *testing.T) {
	args := func(p *repeat.Plan) (a repeat.Args[string]) {
		require.NoError(t, codec.DecodeValue(taskOf(p).Args, &a))
		return a
	}
	p := begun(t)
	first := repeat.Args[string]{
		PlanID: "p", PlanTime: dawn.Add(time.Minute), Step: 1, PlanType: repeat.Minute, PlanValue: 1, PlanRepet: 3, Messages: []string{"m"},
	}
	require.Equal(t, first, args(p))
	p = Ended(bare(p), End{Step: 1, Status: model.StatusFailure, Kind: failkind.Error}, dawn)
	first.LastState = StateError
	require.Equal(t, first, args(p), "another try of the step")
	p = Ended(bare(p), End{Step: 1, Try: 1, Status: model.StatusSuccess}, dawn)
	require.Equal(t, []any{StateOK, int64(1), int64(2)}, []any{args(p).LastState, args(p).RealRepet, args(p).Step})
}

func TestArgumentsOfAnEarlierReleaseAreRead(t *testing.T) {
	raw, err := bson.Marshal(bson.D{{Key: "plan_id", Value: "p"}, {Key: "plan_time", Value: dawn}, {Key: "step", Value: int64(2)}, {Key: "messages", Value: bson.A{"m"}}})
	require.NoError(t, err)
	var a repeat.Args[string]
	require.NoError(t, codec.DecodeValue(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}, &a))
	require.Equal(t, repeat.Args[string]{PlanID: "p", PlanTime: dawn, Step: 2, Messages: []string{"m"}}, a)
}

func TestEndsOfAnotherStepOrTryChangeNothing(t *testing.T) {
	p := bare(begun(t))
	for _, e := range []End{{Step: 2}, {Step: 1, Try: 1}, {}} {
		e.Status = model.StatusSuccess
		require.Same(t, p, Ended(p, e, dawn))
	}
	earlier := EndOf(taskOf(p))
	earlier.Status, earlier.Created = model.StatusSuccess, dawn.AddDate(-1, 0, 0)
	require.Same(t, p, Ended(p, earlier, dawn), "a plan of last year with that id")
	second := bare(Ended(p, End{Step: 1, Status: model.StatusSuccess, At: dawn}, dawn))
	require.Same(t, second, Ended(second, End{Step: 1, Status: model.StatusSuccess}, dawn), "told twice")
}

func TestAStepThatFailsPausesEverLonger(t *testing.T) {
	p := begun(t)
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		p = Ended(bare(p), End{Step: 1, Try: p.Try, Status: model.StatusFailure, Kind: failkind.Error, ErrorInfo: "no"}, dawn)
		require.Equal(t, []repeat.Action{DoAgain}, does(p))
		require.Equal(t, dawn.Add(want*time.Second), p.Planned[0].At)
		require.Equal(t, p.Try, p.Planned[0].Try)
		require.Equal(t, StateError, p.LastState)
		require.Equal(t, "no", p.Reason)
	}
	require.Equal(t, int64(1), p.Step)
	require.Zero(t, p.RealRepet)
}

func TestAStepWhoseHandlerWantsNoRetryTakesThePlanOutOfTheQueue(t *testing.T) {
	spec := func(s *repeat.Spec) {
		s.Callback = &model.Callback{Error: &model.CallbackTarget{URL: "https://example.org/no"}}
	}
	ends := func(status model.Status) (*repeat.Plan, []*repeat.Result) {
		p := bare(begun(t, spec))
		task := *taskOf(p)
		task.Status, task.ErrorInfo, task.FinishedAt = status, "no such region", dawn
		task.WorkerStates = []model.WorkerState{
			{ExecID: "a", WorkerID: "w1", FailTime: dawn, FailKind: failkind.Error, FailReason: "not yet"},
			{ExecID: "b", WorkerID: "w1", FailTime: dawn, FailKind: failkind.Fatal, FailReason: "no such region"},
		}
		return Ended(p, EndOf(&task), dawn), ResultsOf(p, &task)
	}
	p, results := ends(model.StatusFailure)
	require.Equal(t, repeat.StatusError, p.Status)
	require.Equal(t, []string{StatePlanError, "no such region"}, []string{p.LastState, p.Reason})
	require.Equal(t, []repeat.Action{DoTellError}, does(p))
	require.Equal(t, []string{StateError, StatePlanError}, []string{results[0].State, results[1].State})
	p, err := Reset(bare(p), dawn)
	require.NoError(t, err)
	require.Equal(t, []repeat.Action{DoAgain}, does(p))

	p, results = ends(model.StatusPending)
	require.Equal(t, repeat.StatusRunning, p.Status, "a person decides about the task")
	require.Equal(t, []string{StateError, StateError}, []string{p.LastState, results[1].State})
	p, _ = ends(model.StatusCancelled)
	require.Equal(t, []repeat.Action{"send p@2"}, does(p), "a person has let it go on")
}

func TestAStepWhoseTaskIsPendingWaitsForAPerson(t *testing.T) {
	p := Ended(bare(begun(t)), End{Step: 1, Status: model.StatusPending, ErrorInfo: "no"}, dawn)
	require.Empty(t, does(p))
	require.Equal(t, repeat.StatusRunning, p.Status)
	p = Ended(bare(p), End{Step: 1, Status: model.StatusManuallyProcessed}, dawn)
	require.Equal(t, int64(2), p.Step)
	require.Equal(t, int64(1), p.RealRepet)
}

func TestACancelledTaskLetsThePlanGoOnWithTheNextStep(t *testing.T) {
	p := Ended(bare(begun(t)), End{Step: 1, Status: model.StatusCancelled, ErrorInfo: "not today"}, dawn)
	require.Equal(t, []repeat.Action{"send p@2"}, does(p))
	require.Equal(t, StateCancelled, p.LastState)
	require.Zero(t, p.RealRepet)
}

func TestATaskThatIsGoneIsSentAgain(t *testing.T) {
	p := Ended(bare(begun(t)), End{Step: 1, Gone: true}, dawn)
	require.Equal(t, []repeat.Action{DoAgain}, does(p))
	require.Equal(t, dawn, p.Planned[0].At)
}

func TestCallbacksTellOfAPlanErrorAndOfTheEnd(t *testing.T) {
	p := begun(t, func(s *repeat.Spec) {
		s.PlanRepet = 1
		s.Callback = &model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/ok"}, Error: &model.CallbackTarget{URL: "https://example.org/no"}}
	})
	p = Ended(bare(p), End{Step: 1, Status: model.StatusFailure, Kind: failkind.PlanError, ErrorInfo: "no such region"}, dawn)
	require.Equal(t, []repeat.Action{DoTellError}, does(p))
	d, is := Delivery(p, &p.Planned[0])
	require.True(t, is)
	require.NotEmpty(t, d.Key)
	p, err := Reset(bare(p), dawn)
	require.NoError(t, err)
	p = Ended(bare(p), End{Step: 1, Try: 1, Status: model.StatusSuccess}, dawn)
	require.Equal(t, []repeat.Action{DoTellFinish, DoLeave}, does(p))
	again, _ := Delivery(p, &p.Planned[0])
	require.NotEqual(t, d.Key, again.Key)
	_, err = Reset(p, dawn)
	require.ErrorAs(t, err, new(*model.RefusedError))
}

func TestAPlanIsCancelledInEachStatus(t *testing.T) {
	p := Cancel(bare(begun(t)), "enough", true, dawn)
	require.Equal(t, []repeat.Action{DoCancel}, does(p))
	require.True(t, p.EndedAt.IsZero(), "its step may run")
	p = Ended(bare(p), End{Step: 1, Status: model.StatusSuccess}, dawn)
	require.Equal(t, []repeat.Action{DoLeave}, does(p), "no step follows")
	require.Equal(t, "enough", p.Reason)
	require.Same(t, p, Cancel(p, "again", true, dawn))

	p = Ended(bare(begun(t)), End{Step: 1, Status: model.StatusFailure, Kind: failkind.PlanError}, dawn)
	p = Cancel(bare(p), "enough", false, dawn)
	require.Equal(t, []repeat.Action{DoLeave}, does(p), "nothing of it runs")
}

func TestNobodyServesAStationIsToldOnce(t *testing.T) {
	p := Unserved(bare(begun(t)), dawn)
	require.Equal(t, []repeat.Action{DoUnserved}, does(p))
	require.Equal(t, StateNoWorker, p.LastState)
	p = bare(p)
	require.Same(t, p, Unserved(p, dawn))
}

func TestWhoTookPartHasAResult(t *testing.T) {
	p := begun(t)
	at := dawn.Add(time.Hour)
	task := *taskOf(p)
	task.Status, task.FinishedAt = model.StatusSuccess, at
	task.WorkerStates = []model.WorkerState{
		{ExecID: "a", WorkerID: "w1", FailTime: at, FailKind: failkind.Lapsed, FailReason: "no ping"},
		{ExecID: "b", WorkerID: "w2", FailTime: at, FailKind: failkind.Released, Unstarted: true},
		{ExecID: "c", WorkerID: "w3", SuccessTime: at},
		{ExecID: "d", WorkerID: "w4", FailTime: at, FailKind: failkind.Undecodable, FailReason: "an older release"},
		{ExecID: "e", WorkerID: "w5", FailTime: at, FailKind: failkind.Cleaned, FailReason: "its success was reset"},
	}
	all := ResultsOf(p, &task)
	require.Len(t, all, 2, "one that did nothing took no part")
	require.Equal(t, []string{"-/p/1/" + input.ShownExecID("a"), "-/p/1/" + input.ShownExecID("c")}, []string{all[0].ID, all[1].ID}, "who may only read sees them")
	require.Equal(t, []string{StateError, StateOK}, []string{all[0].State, all[1].State})
	require.Equal(t, p.PlanTime, all[1].PlanTime)
	p.RequestID, p.Caller = "r-1", "ann"
	for _, r := range append(ResultsOf(p, &task), UnservedResult(p, &repeat.Planned{Step: 1})) {
		require.Equal(t, []string{"r-1", "ann"}, []string{r.RequestID, r.Caller})
	}
	again := task
	again.Status = model.StatusExecuting
	require.Empty(t, ResultsOf(p, &again), "it runs")
	again = task
	other := *task.Origin
	other.Step++
	again.Origin = &other
	require.Empty(t, ResultsOf(p, &again), "it is another step")
}
