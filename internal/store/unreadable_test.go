package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

type ahead struct {
	clock.Clock
	by atomic.Int64
}

func (a *ahead) Monotonic() time.Duration { return a.Clock.Monotonic() + time.Duration(a.by.Load()) }

func TestADocumentThatCannotBeReadIsLeftOutAndTheLogSaysSoOnceAMinute(t *testing.T) {
	db := testdb.New(t)
	var log bytes.Buffer
	at := &ahead{Clock: clock.System()}
	s, err := store.Open(store.Config{Database: db, Clock: at, Logger: zerolog.New(&log)})
	require.NoError(t, err)
	_, err = db.Collection("task_types").InsertMany(t.Context(), []any{
		bson.D{{Key: "_id", Value: "a"}, {Key: "max_running", Value: "three"}}, bson.D{{Key: "_id", Value: "b"}, {Key: "max_running", Value: 3}},
	})
	require.NoError(t, err)
	for _, c := range []struct {
		after time.Duration
		lines int
	}{{0, 1}, {time.Second, 1}, {2 * time.Hour, 2}} {
		at.by.Store(int64(c.after))
		types, unread, err := s.Types.List(t.Context())
		require.NoError(t, err)
		require.Len(t, types, 1)
		require.Equal(t, "b", types[0].Code)
		require.Len(t, unread, 1)
		require.Equal(t, "a", unread[0].ID)
		require.Equal(t, c.lines, strings.Count(log.String(), `"id":"a"`), "after %v", c.after)
	}
}

func TestTasksThatCannotBeReadHideNoneBehindThem(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.FreshClock(t.Context()))
	past := time.Now().Add(-time.Hour)
	for i := range 4 {
		doc := bson.D{
			{Key: "_id", Value: fmt.Sprint(i)}, {Key: "type", Value: "tick"}, {Key: "priority", Value: 9 - i}, {Key: "audience", Value: bson.A{lifecycle.AudienceAll}},
			{Key: "due_at", Value: past}, {Key: "lapse_at", Value: past}, {Key: "expire_at", Value: past},
		}
		if i < 3 {
			doc = append(doc, bson.E{Key: "error_count", Value: "three"})
		}
		_, err := db.Collection("tasks").InsertOne(t.Context(), doc)
		require.NoError(t, err)
	}
	for name, find := range map[string]func() ([]*model.Task, error){
		"due": func() ([]*model.Task, error) {
			return s.Tasks.Due(t.Context(), store.DueQuery{Types: []string{"tick"}, WorkerID: "w", Limit: 1})
		},
		"lapsed": func() ([]*model.Task, error) {
			return s.Tasks.Lapsed(t.Context(), []string{"tick"}, &store.LapsedFrom{}, 1)
		},
		"expired": func() ([]*model.Task, error) { return s.Tasks.Expired(t.Context(), &store.ExpiredFrom{}, 1) },
	} {
		tasks, err := find()
		require.NoError(t, err, name)
		require.Len(t, tasks, 1, name)
		require.Equal(t, "3", tasks[0].ID, name)
	}
}

// spoil changes a task as a later release might: this one cannot read it any more.
func (s *stepping) spoil(task *model.Task) {
	s.Helper()
	_, err := s.db.Collection("tasks").UpdateByID(s.Context(), task.ID, bson.D{
		{Key: "$set", Value: bson.D{{Key: "worker_states.0.fail_kind", Value: 7}, {Key: "status", Value: 7}}}, {Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}},
	})
	require.NoError(s, err)
}

func TestATaskThatCannotBeReadKeepsNoOtherFromItsEnd(t *testing.T) {
	s := newStepping(t)
	var writes []store.Write
	for _, key := range []string{"bad", "good", "crossed"} {
		task := s.held(key, "w")
		after, err := lifecycle.Finish(task, "w", lifecycle.Success(bson.RawValue{}), lifecycle.ResolveOptions(task.Options), s.now, 0)
		require.NoError(t, err)
		writes = append(writes, store.Write{Before: task, After: after})
	}
	s.spoil(writes[0].Before)
	_, err := s.db.Collection("tasks").UpdateByID(t.Context(), writes[2].Before.ID, bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}})
	require.NoError(t, err)
	written, err := s.Tasks.Writes(t.Context(), writes, 0)
	require.NoError(t, err)
	require.Equal(t, store.Written{Held: true, Unread: true}, written[0])
	require.True(t, written[1].Applied)
	require.False(t, written[2].Applied)
	require.NotNil(t, written[2].Current)
	require.False(t, written[2].Held)
}

// Nobody knows whether its execution is open, so nothing follows it on its permit.
func TestNoClaimFollowsTheEndOfATaskThatCannotBeRead(t *testing.T) {
	s := newStepping(t)
	bad := s.held("bad", "w")
	end, err := lifecycle.Finish(bad, "w", lifecycle.Success(bson.RawValue{}), lifecycle.ResolveOptions(), s.now, 0)
	require.NoError(t, err)
	next := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "next"}, s.now)
	_, err = s.Tasks.Insert(t.Context(), []*model.Task{next})
	require.NoError(t, err)
	claim, no := lifecycle.Claim(next, lifecycle.Claimant{WorkerID: "w", ExecID: "e2"}, lifecycle.ResolveOptions(), s.now)
	require.Empty(t, no)
	s.spoil(bad)
	got, err := s.Tasks.Follow(t.Context(), []store.Follow{{ExecID: "w", End: store.Write{Before: bad, After: end}, Claim: store.Write{Before: next, After: claim}}}, 0)
	require.NoError(t, err)
	require.True(t, got[0].Ended.Unread)
	require.False(t, got[0].Claimed.Applied)
}

func TestATaskThatCannotBeReadKeepsNobodyFromHearingOfALostLease(t *testing.T) {
	s := newStepping(t)
	bad, lost, mine := s.held("bad", "w"), s.held("lost", "w"), s.held("mine", "w")
	s.spoil(bad)
	_, err := s.db.Collection("tasks").UpdateByID(t.Context(), lost.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "worker_states.0.success_time", Value: s.now}}}})
	require.NoError(t, err)
	var pings []store.Ping
	for _, task := range []*model.Task{bad, lost, mine} {
		pings = append(pings, store.Ping{ID: task.ID, ExecID: "w", Until: s.now.Add(time.Hour)})
	}
	gone, err := s.Tasks.Pings(t.Context(), pings, 0)
	require.NoError(t, err)
	require.Len(t, gone, 1)
	require.Equal(t, lost.ID, gone[0].ID)
	require.False(t, pings[2].Missed)
}

func TestATaskThatCannotBeReadKeepsNoOtherFromItsStep(t *testing.T) {
	s := newStepping(t)
	bad, good := s.held("bad", "w"), s.held("good", "w")
	s.spoil(bad)
	_, err := s.db.Collection("tasks").UpdateByID(t.Context(), bad.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "worker_states.0.success_time", Value: s.now}}}})
	require.NoError(t, err)
	saved, err := s.Tasks.SaveSteps(t.Context(), []store.StepWrite{s.step(bad, "w", "a", "1"), s.step(good, "w", "a", "1")}, 0)
	require.NoError(t, err)
	var unread *model.UnreadableError
	require.ErrorAs(t, saved[0].Refused, &unread)
	require.Equal(t, "a", saved[1].Step.Name)
}

func TestAPermitIsUsedWhileItsTaskCannotBeRead(t *testing.T) {
	s := newStepping(t)
	bad, good := s.held("bad", "w"), s.held("good", "w")
	_, err := s.db.Collection("tasks").UpdateByID(t.Context(), bad.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "worker_states.0.fail_time", Value: "now"}}}})
	require.NoError(t, err)
	open, unread, err := s.Permits.OpenOf(t.Context(), "t", s.now.Add(time.Hour))
	require.NoError(t, err)
	require.Len(t, open, 1)
	require.Len(t, unread, 1)
	holders, err := s.Permits.HoldersOf(t.Context(), []string{bad.ID, good.ID, "-/t/gone"})
	require.NoError(t, err)
	state := func(id string) lifecycle.PermitState {
		p := lifecycle.Permit{PermitUse: lifecycle.PermitUse{TaskID: id, ExecID: "w", Generation: good.Generation, Rev: 2}}
		return p.State(holders)
	}
	require.Equal(t, lifecycle.PermitUsed, state(bad.ID))
	require.Equal(t, lifecycle.PermitUsed, state(good.ID))
	require.Equal(t, lifecycle.PermitFree, state("-/t/gone"))
}

func TestAResultThatCannotBeReadEndsNoStreamOfResults(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	stream, err := s.Results.Watch(t.Context(), store.ResultFilter{PlanID: "p"}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, stream.Close(t.Context())) }()
	for _, doc := range []bson.D{{{Key: "step", Value: "one"}}, {{Key: "step", Value: 2}}} {
		_, err := db.Collection("plan_results").InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: fmt.Sprint(doc)}, {Key: "plan_id", Value: "p"}}, doc...))
		require.NoError(t, err)
	}
	for {
		result, err := stream.Next(t.Context())
		require.NoError(t, err)
		if result != nil { // a first look may find nothing
			require.EqualValues(t, 2, result.Step)
			return
		}
	}
}
