package consumer

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Tasks are read with their arguments, which may be large. A type that runs one task at a time must not have a hundred
// read for each.
func TestAFetchReadsLittleMoreThanTheLimitsOfTypesAllow(t *testing.T) {
	for _, tc := range []struct {
		limits map[string]int // MaxConcurrency by type; 0 = none
		most   int
	}{
		{map[string]int{"one": 1}, 18},
		{map[string]int{"one": 1, "ten": 10}, 38},
		{map[string]int{"one": 1, "any": 0}, 100},
	} {
		var read atomic.Int64
		db := testdb.Watched(t, &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if ns, _ := e.Reply.Lookup("cursor", "ns").StringValueOK(); e.CommandName == "find" && strings.HasSuffix(ns, ".tasks") {
				tasks, _ := e.Reply.Lookup("cursor", "firstBatch").Array().Values()
				read.Add(int64(len(tasks)))
			}
		}})
		c, err := New(Config{Database: db, Concurrency: 100})
		require.NoError(t, err)
		backlog := map[string]int{}
		for typ, limit := range tc.limits {
			var opts []HandleOption
			if limit > 0 {
				opts = append(opts, MaxConcurrency(limit))
			}
			require.NoError(t, Handle(c, model.NewType[int, int](typ), func(context.Context, *Task[int]) (int, error) { return 0, nil }, opts...))
			backlog[typ] = 200
		}
		prepare(t, c)
		putMany(t, c, backlog, nil)
		read.Store(0)
		require.NoError(t, c.fetchFor(t)())
		require.EqualValues(t, tc.most, read.Load(), "%v", tc.limits)
	}
}
