package limits

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

// dueTasks are n tasks of a priority, each due a second after the one before.
func dueTasks(priority, n int) (tasks []*model.Task) {
	for i := range n {
		due := time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
		tasks = append(tasks, &model.Task{ID: fmt.Sprintf("%d/%d", priority, i), Priority: priority, DueAt: due})
	}
	return tasks
}

// first never chooses among several.
func first(int) int { return 0 }

// last chooses the last of several.
func last(n int) int { return n - 1 }

func TestCandidatesComeByPriorityAndTimeAndEachOnce(t *testing.T) {
	var c candidates
	c.learn(dueTasks(5, 2), time.Second)
	c.learn(dueTasks(9, 1), time.Second)
	c.learn(dueTasks(5, 3), time.Second)
	require.Equal(t, []string{"9/0", "5/0"}, c.take(2, first))
	require.Equal(t, []string{"5/1", "5/2"}, c.take(3, first))
	require.Empty(t, c.take(1, first))
}

func TestCandidatesThatNameThisWorkerComeFirstOfTheirPriority(t *testing.T) {
	var c candidates
	tasks := dueTasks(5, 4)
	tasks[3].Options.SpecificWorkerIDs = []string{"me"}
	c.learn(append(tasks, dueTasks(9, 1)...), time.Second)
	c.adapt(0, 1)
	require.Equal(t, []string{"9/0"}, c.take(1, last))
	require.Equal(t, []string{"5/3"}, c.take(1, last), "also for a process that others are ahead of")
	require.Equal(t, []string{"5/0", "5/1"}, c.take(2, first))
}

func TestAProcessThatOthersAreAheadOfChoosesAmongMoreOfTheSamePriority(t *testing.T) {
	var c candidates
	c.learn(dueTasks(9, 4), time.Second)
	c.learn(dueTasks(5, 50), time.Second)
	c.adapt(0, 1)
	require.Equal(t, []string{"9/1"}, c.take(1, last), "the second of a window of two")
	for range 10 {
		c.adapt(3, 0)
	}
	require.Equal(t, []string{"9/3", "5/0", "5/1", "5/2"}, c.take(1, last), "no further than its priority, and as many more as were gone")
	for range 200 {
		c.adapt(0, 0)
	}
	require.Equal(t, []string{"9/0"}, c.take(1, last), "nobody is ahead any more")
}

func TestCandidatesAreSearchedForWhenTheyAreFewOrOldAndThereAreMore(t *testing.T) {
	now := time.Minute
	var c candidates
	require.False(t, c.usable(now))
	require.False(t, c.wanted(now), "the type has never been short of permits")
	c.learn(dueTasks(5, 3), now)
	require.True(t, c.usable(now))
	require.True(t, c.wanted(now), "what was found beside others need not be the best")
	c.replace(dueTasks(5, MostCandidates), true, now)
	require.False(t, c.wanted(now))
	require.True(t, c.wanted(now+candidatesFresh), "better ones may have come")
	require.False(t, c.usable(now+candidatesKept+1))
	c.take(MostCandidates-fewCandidates+1, first)
	require.True(t, c.wanted(now), "few are left")
	c.replace(dueTasks(5, 3), false, now)
	require.False(t, c.wanted(now), "few, and these are all")
	c.take(3, first)
	require.False(t, c.usable(now))
	require.False(t, c.wanted(now+candidatesFresh), "there is no task: an end costs no search")
	c.learn(dueTasks(5, 1), now)
	require.True(t, c.usable(now))
}

func TestOneSearchForCandidatesIsUnderWayAtATime(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(1)
	s.Learn(s.stored(2))
	require.True(t, s.SearchWanted(sweptType))
	require.False(t, s.SearchWanted(sweptType))
	s.Found(sweptType, nil, false, errors.New("no answer"))
	require.True(t, s.Knows(sweptType), "what was known stays")
	require.True(t, s.SearchWanted(sweptType), "the last one failed")
	s.Found(sweptType, nil, false, nil)
	require.False(t, s.Knows(sweptType))
	require.False(t, s.SearchWanted(sweptType))
}
