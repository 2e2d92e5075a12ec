package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestAClaimFollowsAnEndInOneCommandAndNeverAnOpenExecution(t *testing.T) {
	var updates atomic.Int64
	p := testdb.Behind(t)
	p.Patient()
	s, direct := openAs(t, options.Client().ApplyURI(p.URI()).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "update" {
				updates.Add(1)
			}
		},
	}))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	topology, err := s.Topology(t.Context())
	require.NoError(t, err)
	eff := lifecycle.ResolveOptions()
	changed := func(t *testing.T, direct *mongo.Database, task *model.Task) {
		_, err := direct.Collection("tasks").UpdateByID(t.Context(), task.ID, bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}}})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		name                        string
		crossed                     func(t *testing.T, runs, next *model.Task)
		ended, open, claimed, first bool // open: the execution afterwards; first: one command is enough
	}{
		{"both", func(*testing.T, *model.Task, *model.Task) {}, true, false, true, true},
		{"the task that runs was changed", func(t *testing.T, runs, _ *model.Task) { changed(t, direct, runs) }, false, true, false, false},
		{"the next was changed", func(t *testing.T, _, next *model.Task) { changed(t, direct, next) }, true, false, false, true},
		{"it was ended by another", func(t *testing.T, runs, _ *model.Task) {
			after, err := lifecycle.Finish(runs, "e1", lifecycle.Failed(failkind.Error, "other"), eff, s.Clock.Now(), 0)
			require.NoError(t, err)
			_, err = s.Tasks.Writes(t.Context(), []store.Write{{Before: runs, After: after}}, 0)
			require.NoError(t, err)
		}, false, false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := s.Clock.Now()
			runs, next := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "runs " + c.name}, now), lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "next " + c.name}, now)
			runs, no := lifecycle.Claim(runs, lifecycle.Claimant{WorkerID: "w", ExecID: "e1"}, eff, now)
			require.Empty(t, no)
			_, err := s.Tasks.Insert(t.Context(), []*model.Task{runs, next})
			require.NoError(t, err)
			end, err := lifecycle.Finish(runs, "e1", lifecycle.Success(bson.RawValue{}), eff, now, 0)
			require.NoError(t, err)
			claim, no := lifecycle.Claim(next, lifecycle.Claimant{WorkerID: "w", ExecID: "e2"}, eff, now)
			require.Empty(t, no)
			c.crossed(t, runs, next)
			updates.Store(0)
			got, err := s.Tasks.Follow(t.Context(), []store.Follow{{
				ExecID: "e1", End: store.Write{Before: runs, After: end}, Claim: store.Write{Before: next, After: claim},
			}}, 0)
			require.NoError(t, err)
			require.Equal(t, c.ended, got[0].Ended.Applied)
			require.Equal(t, c.claimed, got[0].Claimed.Applied)
			if !topology.Sharded {
				require.Equal(t, c.first, updates.Load() == 1)
			}
			stored, err := s.Tasks.ByIDs(t.Context(), []string{runs.ID, next.ID})
			require.NoError(t, err)
			_, w := lifecycle.ExecutionOf(stored[runs.ID], "e1")
			require.Equal(t, c.open, lifecycle.Open(w))
			_, w = lifecycle.ExecutionOf(stored[next.ID], "e2")
			require.Equal(t, c.claimed, w != nil)
		})
	}
}

// The first command may have written both before its wait for a majority ended, so a claim behind a held end is not
// known to be lost.
func TestAClaimBehindAHeldEndIsHeld(t *testing.T) {
	s := newStepping(t)
	eff := lifecycle.ResolveOptions()
	runs, next := s.held("runs", "w"), lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "next"}, s.now)
	_, err := s.Tasks.Insert(t.Context(), []*model.Task{next})
	require.NoError(t, err)
	end, err := lifecycle.Finish(runs, "w", lifecycle.Success(bson.RawValue{}), eff, s.now, 0)
	require.NoError(t, err)
	claim, no := lifecycle.Claim(next, lifecycle.Claimant{WorkerID: "w", ExecID: "e2"}, eff, s.now)
	require.Empty(t, no)
	follows := []store.Follow{{ExecID: "w", End: store.Write{Before: runs, After: end}, Claim: store.Write{Before: next, After: claim}}}

	release := s.hold("tasks", runs.ID)
	got, err := s.Tasks.Follow(t.Context(), follows, time.Second)
	require.NoError(t, err)
	require.True(t, got[0].Ended.Held)
	require.False(t, got[0].Claimed.Applied)
	require.True(t, got[0].Claimed.Held)

	release()
	got, err = s.Tasks.Follow(t.Context(), follows, time.Second)
	require.NoError(t, err)
	require.True(t, got[0].Ended.Applied && got[0].Claimed.Applied)
}
