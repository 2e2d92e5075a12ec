package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestAfterLostClaimsFewOfTheBatchAreReadAgain(t *testing.T) {
	var read, more atomic.Int64
	s, direct := openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if ids, ok := e.Command.Lookup("filter", "_id", "$in").ArrayOK(); ok && e.CommandName == "find" {
				values, _ := ids.Values()
				read.Add(int64(len(values)))
			}
			if e.CommandName == "getMore" {
				more.Add(1)
			}
		},
	}))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	topology, err := s.Topology(t.Context())
	require.NoError(t, err)
	const all = 1000
	for round, c := range []struct {
		why  string
		lost func(i int) bool
		most int64 // to read
	}{
		{"none", func(int) bool { return false }, 0},
		{"at the start", func(i int) bool { return i < 60 }, 2 * (60 + 16)},
		{"at the end", func(i int) bool { return i >= all-60 }, 2 * (60 + 16)},
		{"at both", func(i int) bool { return i < 30 || i >= all-30 }, 2 * (60 + 16)},
		{"in the middle", func(i int) bool { return i/50 == 10 }, all},
		{"here and there", func(i int) bool { return i%100 == 7 }, all},
		{"most", func(i int) bool { return i%10 != 0 }, all},
		{"all", func(int) bool { return true }, all},
	} {
		writes := make([]store.Write, all)
		tasks, taken := make([]*model.Task, all), bson.A{}
		for i := range writes {
			tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(round, i)}, s.Clock.Now())
			if c.lost(i) {
				taken = append(taken, tasks[i].ID)
			}
		}
		_, err := s.Tasks.Insert(t.Context(), tasks)
		require.NoError(t, err)
		_, err = direct.Collection("tasks").UpdateMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: taken}}}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}}})
		require.NoError(t, err)
		now := s.Clock.Now()
		for i := range writes {
			after, no := lifecycle.Claim(tasks[i], lifecycle.Claimant{WorkerID: "w", ExecID: fmt.Sprint("e", round)}, lifecycle.ResolveOptions(), now)
			require.Empty(t, no)
			writes[i] = store.Write{Before: tasks[i], After: after}
		}
		read.Store(0)
		written, err := s.Tasks.Writes(t.Context(), writes, store.Patience)
		require.NoError(t, err)
		for i, w := range written {
			require.Equal(t, c.lost(i), !w.Applied, "%s: %d", c.why, i)
			require.Equal(t, c.lost(i), w.Current != nil, "%s: %d", c.why, i)
		}
		if !topology.Sharded { // a router's counts do not say enough
			require.LessOrEqual(t, read.Load(), c.most, c.why)
		}
		require.Zero(t, more.Load(), "%s: a second command for one answer", c.why)
	}
}

// A task that was claimed and that somebody changed before the look says nothing of the
// others: one of them was lost all the same.
func TestALostClaimIsFoundBesideOneThatWasChangedAfterIt(t *testing.T) {
	const all, lost = 1000, 500
	for name, change := range map[string]bson.D{
		"a new life":      {{Key: "$inc", Value: bson.D{{Key: "generation", Value: int64(1)}, {Key: "rev", Value: int64(1)}}}},
		"a cancelled one": {{Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}}, {Key: "$set", Value: bson.D{{Key: "worker_states.0.fail_time", Value: time.Now()}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var interfere func()
			s, direct := openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
				Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
					if e.CommandName == "update" && interfere != nil {
						interfere()
					}
				},
			}))
			require.NoError(t, s.Ready(t.Context()))
			require.NoError(t, s.ReadClock(t.Context()))
			writes, tasks := make([]store.Write, all), make([]*model.Task, all)
			for i := range tasks {
				tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, s.Clock.Now())
			}
			_, err := s.Tasks.Insert(t.Context(), tasks)
			require.NoError(t, err)
			byID := func(i int) bson.D { return bson.D{{Key: "_id", Value: tasks[i].ID}} }
			_, err = direct.Collection("tasks").UpdateOne(t.Context(), byID(lost), bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}}})
			require.NoError(t, err)
			now := s.Clock.Now()
			for i := range writes {
				after, no := lifecycle.Claim(tasks[i], lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, lifecycle.ResolveOptions(), now)
				require.Empty(t, no)
				writes[i] = store.Write{Before: tasks[i], After: after}
			}
			interfere = func() {
				interfere = nil
				_, err := direct.Collection("tasks").UpdateOne(context.Background(), byID(0), change)
				require.NoError(t, err)
			}
			written, err := s.Tasks.Writes(t.Context(), writes, store.Patience)
			require.NoError(t, err)
			require.False(t, written[lost].Applied)
			require.True(t, written[lost-1].Applied)
		})
	}
}
