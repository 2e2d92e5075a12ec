package fetchplan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/model"
)

// simStart is some time of the database.
var simStart = time.UnixMilli(1_700_000_000_000).UTC()

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
