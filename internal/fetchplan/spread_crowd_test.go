package fetchplan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/scalemodel"
	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/model"
)

// newCrowd makes one on a backlog. Whatever the server has to do, from a look to its claim it takes
// 50 to 150 ms, and as long again until the next look.
func newCrowd(workers, backlog, slots int, span time.Duration) *scalemodel.Crowd {
	return seededCrowd(workers, backlog, slots, span, 7)
}

func seededCrowd(workers, backlog, slots int, span time.Duration, seed uint64) *scalemodel.Crowd {
	f := scalemodel.NewCrowd(workers, backlog, slots, span, seed)
	f.Batch = slots
	f.Cost = func(c scalemodel.Command) time.Duration {
		if c.Kind != scalemodel.Claim {
			return 0
		}
		return time.Duration(c.Slow) * f.MS(50, 150)
	}
	f.Pause = func() time.Duration { return f.MS(20, 150) }
	return f
}

// Run with -v it prints what docs/performance.md quotes.
func TestAFleetDoesNotFight(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	for _, c := range []struct {
		workers, backlog, slots int
		span                    time.Duration // over which the tasks became due
		attempts, keys          float64       // at most, for each task
		batch, inverted         float64       // at least, of the slots; at most
	}{
		{1, 20_000, 100, time.Minute, 1, 1.02, 1, 0},
		{4, 20_000, 100, time.Minute, 1.2, 2, 0.85, 0.3},
		{4, 100_000, 1000, time.Minute, 1.2, 2, 0.7, 0.4},
		{4, 20_000, 100, 0, 1.4, 3, 0.9, 0.05},
		{16, 20_000, 100, time.Minute, 1.3, 2, 0.56, 0.7},
		{16, 20_000, 100, 20 * time.Millisecond, 1.3, 8, 0.6, 0.7},
		{16, 20_000, 100, 0, 1.4, 8, 0.85, 0.1},
		{16, 100_000, 1000, time.Minute, 1.35, 2, 0.58, 0.7},
		{16, 2_000, 100, time.Minute, 2.1, 4, 0.4, 0.7}, // little more than one batch for each
		{64, 40_000, 100, time.Minute, 1.5, 3, 0.5, 0.7},
		{256, 40_000, 100, time.Minute, 2.1, 4, 0.3, 0.7},
		{1024, 20_000, 100, time.Minute, 6, 8, 0, 0.7},
	} {
		t.Run(fmt.Sprintf("%d workers, %d tasks due within %v, batches of %d", c.workers, c.backlog, c.span, c.slots), func(t *testing.T) {
			f := newCrowd(c.workers, c.backlog, c.slots, c.span)
			require.NoError(t, f.Run())
			attempts, keys := float64(f.Tried)/float64(c.backlog), float64(f.Keys)/float64(c.backlog)
			batch, inverted := float64(f.Tried)/float64(f.Claims), scenario.Inversions(f.Order)
			t.Logf("%4d workers: %.2f claims attempted for each won, %.2f index keys for each, batches of %.0f, %.3f of the pairs inverted, %.2f finds a batch, %.0f s",
				c.workers, attempts, keys, batch, inverted, float64(f.Finds)/float64(f.Claims), (f.Now - time.Minute).Seconds())
			require.Len(t, f.Order, c.backlog)
			require.LessOrEqual(t, attempts, c.attempts)
			require.LessOrEqual(t, keys, c.keys)
			require.GreaterOrEqual(t, batch, c.batch*float64(c.slots))
			require.LessOrEqual(t, inverted, c.inverted)
		})
	}
}

// The same backlog, once by one worker and once by four: finds, claims, reads of batches with
// lost claims, and ends. It is the mean of ten runs: single ones are up to a tenth from it.
func TestACrowdOfFourCostsTheServerLittleMoreThanOneWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	const backlog, batch = 300_000, 1000
	cost := func(workers int, runs float64) (commands, examined float64) {
		for seed := range uint64(runs) {
			f := seededCrowd(workers, backlog, batch, time.Minute, seed+1)
			require.NoError(t, f.Run())
			require.Len(t, f.Order, backlog)
			commands += float64(f.Finds+f.Claims+f.ReadBack+f.Claims) / runs
			keys := f.Keys + f.Tried + backlog // of the index due, then of _id for claims and ends
			documents := f.Tried + f.Tried + backlog
			examined += float64(keys+documents) / runs
		}
		return commands, examined
	}
	commands, examined := cost(1, 1) // there is no chance in it
	more, moreExamined := cost(4, 10)
	t.Logf("%.3f times the commands, %.3f times the keys and documents", more/commands, moreExamined/examined)
	require.LessOrEqual(t, more, 1.2*commands)
	require.LessOrEqual(t, moreExamined, 1.2*examined)
}

// While a crowd works on a long backlog, tasks come that have an old start time, and tasks of a
// greater priority. Both are found within seconds.
func TestACrowdFindsStragglersAndGreaterPrioritiesWithinSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	for _, workers := range []int{1, 4, 16, 64} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			f := newCrowd(workers, 10_000*workers, 100, time.Hour)
			var late, great []*scalemodel.Task
			for i := range 20 {
				at := f.Now + time.Second + time.Duration(i)*200*time.Millisecond
				straggler := &scalemodel.Task{N: -1 - i, Task: model.Task{Type: "t", Priority: 5, DueAt: scalemodel.Start.Add(-24 * time.Hour)}}
				urgent := &scalemodel.Task{N: -100 - i, Task: model.Task{Type: "t", Priority: 9, DueAt: scalemodel.Start.Add(at - time.Minute)}}
				old := &scalemodel.Task{N: -200 - i, Task: model.Task{Type: "t", Priority: 9, DueAt: scalemodel.Start.Add(-24 * time.Hour)}}
				late, great = append(late, straggler), append(great, urgent, old)
				for _, task := range []*scalemodel.Task{straggler, urgent, old} {
					task.At = at
					f.Live = append(f.Live, task)
				}
			}
			require.NoError(t, f.Run())
			longest := func(tasks []*scalemodel.Task) (d time.Duration) {
				for _, task := range tasks {
					d = max(d, task.WonAt-task.At)
				}
				return d
			}
			t.Logf("%2d workers: stragglers within %v, greater priorities within %v", workers, longest(late), longest(great))
			require.LessOrEqual(t, longest(late), 5*time.Second)
			require.LessOrEqual(t, longest(great), 5*time.Second)
		})
	}
}

// A few large sends make a backlog of a few moments. Each moment has its share of the workers, the
// first one, too.
func TestACrowdDoesNotFightOverABacklogOfFewMoments(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	const backlog = 20_000
	for _, c := range []struct {
		workers, slots, moments int
		attempts                float64 // at most, for each task
	}{
		{4, 1000, 2, 1.2}, {4, 100, 4, 1.15},
		{16, 100, 2, 1.2}, {16, 1000, 2, 1.2}, {16, 100, 4, 1.2}, {16, 1000, 4, 1.2}, {16, 1000, 16, 1.2},
		{64, 100, 2, 1.2}, {64, 1000, 4, 1.5},
	} {
		t.Run(fmt.Sprintf("%d workers, %d moments, batches of %d", c.workers, c.moments, c.slots), func(t *testing.T) {
			f := newCrowd(c.workers, backlog, c.slots, 500*time.Millisecond)
			f.Bunch(c.moments)
			require.NoError(t, f.Run())
			require.Len(t, f.Order, backlog)
			attempts := float64(f.Tried) / backlog
			t.Logf("%.2f claims attempted for each won", attempts)
			require.LessOrEqual(t, attempts, c.attempts)
		})
	}
}

// Strips belong to nobody for long: whatever becomes of some of the workers, the others reach every
// task in a small multiple of the time that their work takes.
func TestEachTaskIsReachedWhateverBecomesOfTheOwnerOfItsStrip(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	const workers, backlog, slots = 16, 40_000, 100
	for _, span := range []time.Duration{time.Minute, 500 * time.Millisecond, 0} {
		for _, c := range []struct {
			what   string
			left   int           // workers that go on as usual
			most   time.Duration // times as long as they need at least
			change func(i int, w *scalemodel.Worker)
		}{
			{"all live", workers, 8, func(int, *scalemodel.Worker) {}},
			{"half of them die", workers / 2, 8, func(i int, w *scalemodel.Worker) {
				if i%2 == 0 {
					w.DiesAt = time.Minute + time.Second
				}
			}},
			{"all but one die", 1, 8, func(i int, w *scalemodel.Worker) {
				if i != 5 {
					w.DiesAt = time.Minute + time.Second
				}
			}},
			{"neighbours are slow", workers - 4, 8, func(i int, w *scalemodel.Worker) {
				if i < 4 {
					w.Slow = 1000
				}
			}},
			{"some know nobody", workers, 8, func(i int, w *scalemodel.Worker) {
				if i%4 == 0 {
					w.Known, w.Rank = 1, 0
				}
			}},
			{"nobody knows anybody", workers, 8, func(_ int, w *scalemodel.Worker) { w.Known, w.Rank = 1, 0 }},
			{"all believe to be the first", workers, 14, func(_ int, w *scalemodel.Worker) { w.Rank = 0 }},
			{"each knows of others", workers, 8, func(i int, w *scalemodel.Worker) { w.Known, w.Rank = 1+i, i/2 }},
		} {
			t.Run(fmt.Sprintf("%s, within %v", c.what, span), func(t *testing.T) {
				f := newCrowd(workers, backlog, slots, span)
				if span == 500*time.Millisecond {
					f.Bunch(4)
				}
				for i, w := range f.Workers {
					c.change(i, w)
				}
				require.NoError(t, f.Run())
				require.Len(t, f.Order, backlog)
				// A worker alone does a batch in 185 ms on average. Of a crowd that shares a moment
				// workers rest.
				took, least := f.Now-time.Minute, backlog/slots*185*time.Millisecond/time.Duration(c.left)
				t.Logf("%v, %.2f of the least, %.2f claims attempted for each won", took, float64(took)/float64(least), float64(f.Tried)/backlog)
				require.LessOrEqual(t, took, c.most*least)
			})
		}
	}
}

// The tasks of a lower priority have their turn when those of the greater ones have ended, and a
// greater priority that comes meanwhile is found within seconds, although half of the workers died.
func TestNoPriorityStarvesInACrowdOfWhichHalfDies(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	const workers, backlog = 16, 20_000
	for _, span := range []time.Duration{time.Minute, 500 * time.Millisecond} {
		f := newCrowd(workers, backlog, 100, span)
		if span < time.Second {
			f.Bunch(4)
		}
		for i := range 3000 {
			f.Add(&scalemodel.Task{N: backlog + i, Task: model.Task{Type: "t", Priority: 2, DueAt: scalemodel.Start.Add(-2 * time.Hour)}})
		}
		var urgent []*scalemodel.Task
		for i := range 20 {
			task := &scalemodel.Task{N: -1 - i, At: f.Now + 1500*time.Millisecond, Task: model.Task{Type: "t", Priority: 9, DueAt: scalemodel.Start.Add(time.Duration(i) * time.Millisecond)}}
			urgent = append(urgent, task)
		}
		f.Live = urgent
		for i, w := range f.Workers {
			if i < workers/2 {
				w.DiesAt = time.Minute + time.Second
			}
		}
		require.NoError(t, f.Run())
		require.Len(t, f.Order, backlog+3000+20)
		for _, task := range urgent {
			require.LessOrEqual(t, task.WonAt-time.Minute-1500*time.Millisecond, 5*time.Second)
		}
	}
}
