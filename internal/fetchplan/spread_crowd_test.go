package fetchplan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

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
			f := newFleet(c.workers, backlog, c.slots, 500*time.Millisecond)
			f.bunch(c.moments)
			f.run(t)
			require.Len(t, f.order, backlog)
			attempts := float64(f.attempted) / backlog
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
			change func(i int, w *simWorker)
		}{
			{"all live", workers, 8, func(int, *simWorker) {}},
			{"half of them die", workers / 2, 8, func(i int, w *simWorker) {
				if i%2 == 0 {
					w.diesAt = time.Minute + time.Second
				}
			}},
			{"all but one die", 1, 8, func(i int, w *simWorker) {
				if i != 5 {
					w.diesAt = time.Minute + time.Second
				}
			}},
			{"neighbours are slow", workers - 4, 8, func(i int, w *simWorker) {
				if i < 4 {
					w.slow = 1000
				}
			}},
			{"some know nobody", workers, 8, func(i int, w *simWorker) {
				if i%4 == 0 {
					w.known, w.rank = 1, 0
				}
			}},
			{"nobody knows anybody", workers, 8, func(_ int, w *simWorker) { w.known, w.rank = 1, 0 }},
			{"all believe to be the first", workers, 14, func(_ int, w *simWorker) { w.rank = 0 }},
			{"each knows of others", workers, 8, func(i int, w *simWorker) { w.known, w.rank = 1+i, i/2 }},
		} {
			t.Run(fmt.Sprintf("%s, within %v", c.what, span), func(t *testing.T) {
				f := newFleet(workers, backlog, slots, span)
				if span == 500*time.Millisecond {
					f.bunch(4)
				}
				for i, w := range f.workers {
					c.change(i, w)
				}
				f.run(t)
				require.Len(t, f.order, backlog)
				// A worker alone does a batch in 185 ms on average. Of a crowd that shares a moment
				// workers rest.
				took, least := f.now-time.Minute, backlog/slots*185*time.Millisecond/time.Duration(c.left)
				t.Logf("%v, %.2f of the least, %.2f claims attempted for each won", took, float64(took)/float64(least), float64(f.attempted)/backlog)
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
		f := newFleet(workers, backlog, 100, span)
		if span < time.Second {
			f.bunch(4)
		}
		for i := range 3000 {
			f.add(&simTask{id: backlog + i, Task: model.Task{Type: "t", Priority: 2, DueAt: simStart.Add(-2 * time.Hour)}})
		}
		var urgent []*simTask
		for i := range 20 {
			task := &simTask{id: -1 - i, Task: model.Task{Type: "t", Priority: 9, DueAt: simStart.Add(time.Duration(i) * time.Millisecond)}}
			task.ID = fmt.Sprint(task.id)
			urgent = append(urgent, task)
			f.live = append(f.live, newTask{at: f.now + 1500*time.Millisecond, t: task})
		}
		for i, w := range f.workers {
			if i < workers/2 {
				w.diesAt = time.Minute + time.Second
			}
		}
		f.run(t)
		require.Len(t, f.order, backlog+3000+20)
		for _, task := range urgent {
			require.LessOrEqual(t, task.wonAt-time.Minute-1500*time.Millisecond, 5*time.Second)
		}
	}
}
