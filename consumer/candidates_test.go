package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestCandidatesBeginWithTasksThatNameThisWorkerAndAreSearchedForFromTheHead(t *testing.T) {
	db := testdb.New(t)
	setup, _ := prepared(t, db)
	limitTo(t, setup, 1)
	due := 0
	putMany(t, setup, map[string]int{limitedType: limits.MostCandidates + 10}, func(task *model.Task) {
		due++
		task.DueAt = task.DueAt.Add(time.Duration(due-1000) * time.Second)
		if due == limits.MostCandidates+10 {
			task.Options.SpecificWorkerIDs, task.Audience = []string{"w0"}, []string{"w0"}
		}
	})
	crew, _ := crewOf(t, db, 1, Config{}, map[string]func(*Task[int]){limitedType: func(*Task[int]) {}})
	c, h := crew[0], crew[0].handlerOf(limitedType)
	require.NoError(t, c.start(t.Context()))
	require.NoError(t, c.prepare(t.Context()))
	t.Cleanup(c.endService)
	require.NoError(t, c.taskTypes.Fresh(t.Context(), 0))
	c.gate.Learn([]*model.Task{{Type: limitedType, ID: "found beside others"}})
	search := func() map[string]int {
		return c.sent.of(t, func() error { return c.searchFor(t.Context(), h) })
	}
	require.Zero(t, search()["bounded search"], "nothing is known of the queue")
	id := func(i int) string { return model.TaskID("", limitedType, fmt.Sprint(i)) }
	require.Equal(t, []string{id(limits.MostCandidates + 9), id(0), id(1)}, c.gate.Candidates(limitedType, 3))
	sent := search()
	require.Positive(t, sent["search"])
	require.Equal(t, sent["search"], sent["bounded search"], "%v", sent)
}
