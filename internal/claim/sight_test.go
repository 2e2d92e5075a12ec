package claim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// sighted is a worker that looks at types in virtual time.
type sighted struct {
	Sight
	passed time.Duration
}

func (s *sighted) begin(types ...string) Look {
	return s.Begin(types, noon.Add(s.passed), time.Hour+s.passed, false)
}

func (s *sighted) hear(t *model.Task) { s.Hear(t, time.Hour+s.passed) }

// due is a task that became due so long before noon.
func due(typ string, priority int, before time.Duration) *model.Task {
	return &model.Task{Type: typ, Priority: priority, DueAt: noon.Add(-before)}
}

func TestTheFirstLookIsAFullOne(t *testing.T) {
	var s sighted
	l := s.begin("a")
	require.True(t, l.Full())
	require.Zero(t, l.From)
	require.True(t, s.begin("a").Full(), "a look that failed says nothing")
}

func TestALookNamesThePrioritiesInUseAndTheHead(t *testing.T) {
	var s sighted
	s.End(s.begin("a"), []*model.Task{due("a", 7, time.Minute), due("a", 7, time.Second), due("a", 5, time.Hour), due("a", 5, time.Minute)}, false)
	l := s.begin("a")
	require.Equal(t, []int{5, 7}, l.Priorities)
	require.Equal(t, noon.Add(-time.Hour), l.From, "the earliest of all that it must not miss")
	s.End(l, []*model.Task{due("a", 5, time.Minute)}, true)
	require.Equal(t, noon.Add(-time.Minute), s.begin("a").From)
	s.End(s.begin("a"), nil, true)
	require.Equal(t, noon.Add(-headMargin), s.begin("a").From, "what is sent now may be due a moment ago")
}

// Of the priority at which a look was cut off it knows the start, of those below nothing.
func TestALookThatWasCutOffSaysNothingOfLowerPriorities(t *testing.T) {
	var s sighted
	s.End(s.begin("a", "b"), []*model.Task{due("a", 5, time.Hour)}, true)
	s.hear(due("a", 3, 2*time.Hour))
	s.passed = FullEvery
	s.End(s.begin("a", "b"), []*model.Task{due("a", 5, time.Minute), due("a", 5, time.Second)}, false)
	l := s.begin("a", "b")
	require.Equal(t, []int{3, 5}, l.Priorities, "it may still be there")
	require.Equal(t, noon.Add(-2*time.Hour), l.From)
}

func TestAFullLookIsDueEveryFewSecondsForEachType(t *testing.T) {
	var s sighted
	s.End(s.begin("a"), nil, true)
	require.False(t, s.begin("a").Full())
	require.True(t, s.begin("a", "b").Full(), "of b nothing is known")
	s.passed = FullEvery - 1
	require.False(t, s.begin("a").Full())
	s.passed = FullEvery
	require.True(t, s.begin("a").Full())
	s.passed = 0
	require.True(t, s.Begin([]string{"a"}, noon.Add(-time.Hour), time.Hour, false).Full(), "the database's time went back")
	require.True(t, s.Begin([]string{"a"}, noon, time.Hour, true).Full(), "it was asked for")
	s.Forget()
	require.True(t, s.begin("a").Full())
}

func TestAStragglerThatIsHeardOfLowersTheHead(t *testing.T) {
	var s sighted
	s.End(s.begin("a", "b"), nil, true)
	s.hear(due("a", 5, time.Hour))
	require.Equal(t, noon.Add(-time.Hour), s.begin("a").From)
	require.Equal(t, noon.Add(-headMargin), s.begin("b").From, "of another type")
	s.hear(due("a", 8, -time.Minute)) // in a minute
	require.Equal(t, []int{5, 8}, s.begin("a").Priorities)
	l := s.begin("a")
	s.hear(due("a", 5, 2*time.Hour))
	s.End(l, nil, true)
	require.Equal(t, noon.Add(-2*time.Hour), s.begin("a").From, "it came while the look was on its way")
}

// What is never seen again does not stay in the queries, but something always does.
func TestAPriorityIsForgottenWhenFullLooksDoNotSeeIt(t *testing.T) {
	var s sighted
	s.End(s.begin("a"), []*model.Task{due("a", 9, time.Hour), due("a", 2, time.Hour)}, true)
	s.passed = usedFor - 1
	s.End(s.begin("a"), []*model.Task{due("a", 9, time.Hour)}, true)
	require.Equal(t, []int{2, 9}, s.begin("a").Priorities)
	s.passed += FullEvery
	s.End(s.begin("a"), []*model.Task{due("a", 9, time.Hour)}, false)
	require.Equal(t, []int{2, 9}, s.begin("a").Priorities, "it was cut off before")
	s.passed += FullEvery
	s.End(s.begin("a"), nil, true)
	require.Equal(t, []int{9}, s.begin("a").Priorities)
	s.passed += time.Hour
	s.End(s.begin("a"), nil, true)
	require.Equal(t, []int{9}, s.begin("a").Priorities)
	var idle sighted
	idle.End(idle.begin("a"), nil, true)
	require.Equal(t, []int{lifecycle.DefaultPriority}, idle.begin("a").Priorities)
}

func TestTasksOfUnknownPrioritiesTeachNothing(t *testing.T) {
	var s sighted
	s.End(s.begin("a"), []*model.Task{due("a", 70, time.Hour)}, true)
	require.True(t, s.begin("a").Full())
	s.hear(due("a", -1, time.Hour))
}

func TestTwoQueuesAtOnceAreLookedAtAsFarAsEitherWants(t *testing.T) {
	a := Look{Priorities: []int{5, 7}, From: noon}
	b := Look{Priorities: []int{3, 5}, From: noon.Add(-time.Hour)}
	priorities, from := Both(a, b)
	require.Equal(t, []int{3, 5, 7}, priorities)
	require.Equal(t, b.From, from)
	priorities, from = Both(a, Look{})
	require.Nil(t, priorities)
	require.Zero(t, from)
}

func TestBestPrefersTasksThatNameTheWorkerWithinAPriority(t *testing.T) {
	named := func(id string, priority int, before time.Duration) *model.Task {
		task := due("a", priority, before)
		task.ID, task.Options.SpecificWorkerIDs = id, []string{"me"}
		return task
	}
	of := func(id string, priority int, before time.Duration) *model.Task {
		task := due("a", priority, before)
		task.ID = id
		return task
	}
	both := named("late but mine", 5, time.Second)
	var ids []string
	for _, task := range Best([]*model.Task{
		of("old", 5, time.Hour), of("less", 4, time.Hour), both, both, of("more", 6, 0), named("less but mine", 4, 0), of("new", 5, time.Minute),
	}, 5) {
		ids = append(ids, task.ID)
	}
	require.Equal(t, []string{"more", "late but mine", "old", "new", "less but mine"}, ids)
}
