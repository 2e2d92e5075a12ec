package stepplan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// lateLife is how a step runs: its worker begins it late, it takes its time, and an engine looks for its end.
type lateLife struct{ waits, takes, looks time.Duration }

// run lets the step of a plan run from when its task was sent, and decides what follows.
func (l lateLife) run(p *repeat.Plan, sent time.Time) (after *repeat.Plan, now time.Time) {
	task := taskOf(p)
	began := task.StartTime
	if sent.After(began) {
		began = sent
	}
	began = began.Add(l.waits)
	task.CreatedAt, task.Status, task.FinishedAt = sent, model.StatusSuccess, began.Add(l.takes)
	task.WorkerStates = []model.WorkerState{{ExecID: "x", WorkerID: "w", ClaimedAt: began, SuccessTime: task.FinishedAt}}
	now = task.FinishedAt.Add(l.looks)
	return Ended(bare(p), EndOf(task), now), now
}

// skips is a plan without no_keep, with a step every so many seconds.
func skips(t require.TestingT, seconds, repet int) *repeat.Plan {
	p, err := Build(&repeat.Spec{Station: "s", PlanType: repeat.Second, PlanValue: seconds, PlanRepet: repet, Messages: []any{"m"}}, "p", dawn)
	require.NoError(t, err)
	p, err = Begin(p, dawn)
	require.NoError(t, err)
	return p
}

// Nobody sees the end of a step at once, and the next one then begins late. None of that is the step's own time.
func TestAPlanLosesNoTimesToTheLooksOfEnginesAndWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		seconds int
		lives   []lateLife
		lost    int64
	}{
		"an engine that idles":              {1, []lateLife{{looks: 5 * time.Second}, {}, {}, {}}, 0},
		"a step that takes almost as long":  {12, []lateLife{{0, 11700 * time.Millisecond, 800 * time.Millisecond}, {0, 11700 * time.Millisecond, 800 * time.Millisecond}, {0, 11700 * time.Millisecond, 800 * time.Millisecond}, {}}, 0},
		"a transaction that commits late":   {1, []lateLife{{waits: 6 * time.Second}, {}, {}, {}}, 0},
		"an election":                       {2, []lateLife{{}, {waits: 3 * time.Second, looks: 3 * time.Second}, {}, {}}, 0},
		"ten seconds":                       {1, []lateLife{{takes: time.Second, looks: 10 * time.Second}, {}, {}, {}}, 0},
		"more than ten seconds":             {20, []lateLife{{waits: 5 * time.Second, looks: 45001 * time.Millisecond}, {}, {}}, 2},
		"a step that takes three intervals": {1, []lateLife{{takes: 3 * time.Second}, {}}, 2},
	} {
		p, now := skips(t, c.seconds, 4), dawn
		for _, l := range c.lives[:min(len(c.lives), 4-int(c.lost))] {
			require.Equal(t, repeat.StatusRunning, p.Status, name)
			p, now = l.run(p, now)
		}
		require.Equal(t, repeat.StatusFinish, p.Status, name)
		require.Equal(t, c.lost, p.Skipped, name)
		require.Equal(t, 4-c.lost, p.RealRepet, name)
	}
}

// A plan with the interval 0 is over after its step, however little time that took.
func TestAPlanWithTheInterval0IsOverAfterItsStep(t *testing.T) {
	p := skips(t, 0, -1)
	p, _ = lateLife{waits: time.Second}.run(p, dawn)
	require.Equal(t, repeat.StatusFinish, p.Status)
}

// The oracle counts the times one by one. Times that pass while the step runs are skipped. Those that pass while it
// waits are made up for, until the plan is more than ten seconds late.
func TestOnlyTimesThatPassWhileAStepRunsAreSkipped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.IntRange(1, 30).Draw(t, "interval")
		p, now := skips(t, seconds, -1), dawn
		draw := func(what string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, most.Milliseconds()).Draw(t, what)) * time.Millisecond
		}
		for range 20 {
			l := lateLife{draw("waits", 4*time.Second), draw("takes", 40*time.Second), draw("looks", 6*time.Second)}
			before := p
			p, now = l.run(p, now)
			says := fmt.Sprintf("%+v of step %d", l, before.Step)
			passed := before.PlanTime.Add(max(l.takes, time.Millisecond))
			if now.Sub(passed) > 10*time.Second {
				passed = now
			}
			want := before.Step + 1
			for dawn.Add(time.Duration(want) * time.Duration(seconds) * time.Second).Before(passed) {
				want++
			}
			require.Equal(t, want, p.Step, says)
			require.Equal(t, want-before.Step-1, p.Skipped-before.Skipped, says)
			require.LessOrEqual(t, now.Sub(p.PlanTime), 10*time.Second, "no step is decided upon later")
		}
	})
}
