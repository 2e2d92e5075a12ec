package fetchplan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/model"
)

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
		{16, 20_000, 100, time.Minute, 1.3, 2, 0.6, 0.7},
		{16, 20_000, 100, 20 * time.Millisecond, 1.3, 8, 0.6, 0.7},
		{16, 20_000, 100, 0, 1.4, 8, 0.85, 0.1},
		{16, 100_000, 1000, time.Minute, 1.35, 2, 0.6, 0.7},
		{16, 2_000, 100, time.Minute, 2.1, 4, 0.4, 0.7}, // little more than one batch for each
		{64, 40_000, 100, time.Minute, 1.5, 3, 0.5, 0.7},
		{256, 40_000, 100, time.Minute, 2.1, 4, 0.3, 0.7},
		{1024, 20_000, 100, time.Minute, 6, 8, 0, 0.7},
	} {
		t.Run(fmt.Sprintf("%d workers, %d tasks due within %v, batches of %d", c.workers, c.backlog, c.span, c.slots), func(t *testing.T) {
			f := newFleet(c.workers, c.backlog, c.slots, c.span)
			f.run(t)
			attempts, keys := float64(f.attempted)/float64(c.backlog), float64(f.walked)/float64(c.backlog)
			batch, inverted := float64(f.attempted)/float64(f.batches), scenario.Inversions(f.order)
			t.Logf("%4d workers: %.2f claims attempted for each won, %.2f index keys for each, batches of %.0f, %.3f of the pairs inverted, %.2f finds a batch, %.0f s",
				c.workers, attempts, keys, batch, inverted, float64(f.finds)/float64(f.batches), (f.now - time.Minute).Seconds())
			require.Len(t, f.order, c.backlog)
			require.LessOrEqual(t, attempts, c.attempts)
			require.LessOrEqual(t, keys, c.keys)
			require.GreaterOrEqual(t, batch, c.batch*float64(c.slots))
			require.LessOrEqual(t, inverted, c.inverted)
		})
	}
}

// The same backlog, once by one worker and once by four: finds, claims, reads of batches with
// lost claims, and ends.
func TestACrowdOfFourCostsTheServerLittleMoreThanOneWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	const backlog, batch = 300_000, 1000
	cost := func(workers int) (commands, examined float64) {
		f := newFleet(workers, backlog, batch, time.Minute)
		f.run(t)
		require.Len(t, f.order, backlog)
		commands = float64(f.finds + f.batches + f.readBack + f.batches)
		keys := f.walked + f.attempted + backlog // of the index due, then of _id for claims and ends
		documents := f.attempted + f.attempted + backlog
		return commands, float64(keys + documents)
	}
	commands, examined := cost(1)
	more, moreExamined := cost(4)
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
			f := newFleet(workers, 10_000*workers, 100, time.Hour)
			var late, great []*simTask
			for i := range 20 {
				at := f.now + time.Second + time.Duration(i)*200*time.Millisecond
				straggler := &simTask{id: -1 - i, Task: model.Task{Type: "t", Priority: 5, DueAt: simStart.Add(-24 * time.Hour)}}
				urgent := &simTask{id: -100 - i, Task: model.Task{Type: "t", Priority: 9, DueAt: simStart.Add(at - time.Minute)}}
				old := &simTask{id: -200 - i, Task: model.Task{Type: "t", Priority: 9, DueAt: simStart.Add(-24 * time.Hour)}}
				late, great = append(late, straggler), append(great, urgent, old)
				for _, task := range []*simTask{straggler, urgent, old} {
					task.ID = fmt.Sprint(task.id)
					f.live = append(f.live, newTask{at: at, t: task})
				}
			}
			sent := map[*simTask]time.Duration{}
			for _, n := range f.live {
				sent[n.t] = n.at
			}
			f.run(t)
			longest := func(tasks []*simTask) (d time.Duration) {
				for _, task := range tasks {
					d = max(d, task.wonAt-sent[task])
				}
				return d
			}
			t.Logf("%2d workers: stragglers within %v, greater priorities within %v", workers, longest(late), longest(great))
			require.LessOrEqual(t, longest(late), 5*time.Second)
			require.LessOrEqual(t, longest(great), 5*time.Second)
		})
	}
}

// foundAll is a full batch of tasks whose start times lie a second apart.
func foundAll(n int, from time.Time) (found []*model.Task) {
	for i := range n {
		found = append(found, &model.Task{Type: "t", Priority: 5, DueAt: from.Add(time.Duration(i) * time.Second)})
	}
	return found
}

func TestAnUncontendedWorkerKeepsTheOrderOfTheQueue(t *testing.T) {
	var s spread
	r := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		a := s.look(100, 0, 16, time.Minute, r)
		require.Equal(t, Aim{atHead: true, take: 100}, a)
		require.False(t, s.saw(a, foundAll(100, simStart), 16, time.Minute, r))
		s.learn(90, 10, 16) // a tenth lost costs less than looking elsewhere
	}
}

func TestAWorkerThatLostLooksElsewhereAndComesBack(t *testing.T) {
	var s spread
	r := rand.New(rand.NewPCG(1, 1))
	a := s.look(100, 0, 16, time.Minute, r)
	s.saw(a, foundAll(100, simStart), 16, time.Minute, r)
	s.learn(80, 20, 16)
	require.True(t, s.wantsTail(time.Minute))
	s.sawTail(simStart.Add(time.Hour), time.Minute)
	from := map[time.Time]bool{}
	for range 200 {
		a := s.look(100, 0, 16, time.Minute, r)
		require.False(t, a.atHead)
		require.Equal(t, 5, a.priority)
		require.Equal(t, 100, a.take, "batches stay full")
		require.False(t, a.from.Before(simStart) || a.from.After(simStart.Add(time.Hour)))
		from[a.from] = true
	}
	require.Greater(t, len(from), 100)
	require.True(t, s.look(100, 0, 16, time.Hour, r).atHead, "now and then it looks at the head")
	n := 0
	for ; s.crowded; n++ {
		s.learn(100, 0, 16)
	}
	require.Equal(t, leastTrust, n)
	s.learn(0, 100, 16)
	require.True(t, s.crowded)
	for n = 0; s.crowded; n++ {
		s.learn(100, 0, 16)
	}
	require.Equal(t, 2*leastTrust, n, "the crowd was still there, so it takes longer to believe that it is gone")
	s.learn(0, 100, 16)
	s.learn(1, 0, 1)
	require.False(t, s.crowded, "alone it needs no proof")
}

func TestNearTheEndOfTheQueueEverybodyTakesAFew(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := spread{crowded: true, among: 4, headAt: time.Hour, field: field{priority: 5, first: &model.Task{}, head: simStart, tail: simStart, tailAt: time.Minute}}
	a := s.look(100, 0, 16, time.Minute, r)
	require.Equal(t, 100, a.take, "how much there is is not known")
	s.saw(a, foundAll(1, simStart)[:1], 16, time.Minute, r)
	require.Equal(t, a.skip+1, s.field.depth)
	s.field.depth = 640
	for range 100 {
		a := s.look(100, 0, 16, time.Minute, r)
		require.Equal(t, 640/64, a.take)
		require.LessOrEqual(t, a.skip, 3*a.take)
		require.Equal(t, 25, s.look(100, 1000, 16, time.Minute, r).take, "quick tasks: not by the handful")
		require.Equal(t, 19, s.look(100, 19, 16, time.Minute, r).take, "slower ones")
	}
	s.saw(Aim{atHead: true, take: 10}, nil, 16, time.Minute, r)
	require.Equal(t, spread{}, s, "an empty queue is nobody's to fight over")
}

// Wherever a worker looks, it comes to the head in a few steps when there is nothing.
func TestLookingPastTheEndLeadsToTheHead(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := spread{crowded: true, among: 8, headAt: time.Hour, field: field{priority: 5, first: &model.Task{}, head: simStart, tail: simStart.Add(time.Hour), tailAt: time.Minute}}
		for steps := 0; ; steps++ {
			require.LessOrEqual(t, steps, maxMisses)
			a := s.look(100, 0, 16, time.Minute, r)
			if !s.saw(a, nil, 16, time.Minute, r) {
				require.True(t, a.atHead)
				break
			}
		}
	}
}

// Only a crowd that keeps losing claims rests, and not for longer than it takes.
func TestACrowdThatLosesClaimsLooksLessOften(t *testing.T) {
	var s spread
	require.Zero(t, s.rest(time.Second))
	s.crowd(16)
	require.Zero(t, s.rest(time.Second))
	for range 100 {
		s.learn(50, 50, 16)
	}
	require.Equal(t, time.Duration(mostSlow(16)*float64(100*time.Millisecond)), s.rest(100*time.Millisecond))
	require.Equal(t, longestRest, s.rest(time.Minute))
	for range 100 {
		s.learn(100, 1, 16)
	}
	require.Zero(t, s.rest(time.Second))
}

func TestALookOfACrowdNamesItsPriorityAndThoseAbove(t *testing.T) {
	l := claim.Look{Priorities: []int{1, 5, 8}, From: simStart}
	head, from := Aim{atHead: true}.place(l)
	require.Equal(t, []int{1, 5, 8}, head)
	require.Equal(t, simStart, from)
	within := Aim{priority: 5, from: simStart.Add(time.Second)}
	some, from := within.place(l)
	require.Equal(t, []int{5, 8}, some)
	require.Equal(t, within.from, from)
	within.all = true
	all, _ := within.place(l)
	require.Equal(t, []int{5, 6, 7, 8, 9}, all)
	one, _ := Aim{priority: 5}.place(claim.Look{})
	require.Equal(t, []int{5}, one)
}
